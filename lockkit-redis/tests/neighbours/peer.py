"""A lock of redis-py, driven by lines on standard input; one line is answered with one line.

acquire SECONDS|never WAIT: the lock with this TTL, waiting at most so many seconds
release, owned, extend SECONDS
"""

import sys

import redis

connection = redis.Redis(port=int(sys.argv[1]))
name = sys.argv[2]
lock = None


def obey(word, *args):
    global lock
    if word == "acquire":
        timeout = None if args[0] == "never" else float(args[0])
        lock = connection.lock(name, timeout=timeout)
        wait = float(args[1])
        granted = lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)
        return "granted" if granted else "refused"
    if word == "release":
        lock.release()
        return "released"
    if word == "extend":
        lock.extend(float(args[0]), replace_ttl=True)
        return "extended"
    return "owned" if lock.owned() else "not owned"


print("ready", flush=True)
for line in sys.stdin:
    try:
        answer = obey(*line.split())
    except redis.exceptions.LockError as error:
        answer = type(error).__name__
    print(answer, flush=True)
