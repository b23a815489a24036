#!/usr/bin/env bash
# Installs what is missing (through the system's package manager, saying so), then runs every
# check and every test. Any failure ends it with an error.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

command -v cargo >/dev/null 2>&1 || fail "cargo is missing; install it with rustup (rustup.rs)"
# The bundled SQLite is compiled from C; the tests of the tool use a terminal made by `script`.
install_missing cc build-essential
install_missing script bsdutils
# Servers that the tests start for themselves, with their own directories and ports, and what
# they are started and looked at with. (Packages of servers may start one of their own as a
# service: no test uses that.)
install_missing redis-server redis-server
install_missing redis-cli redis-tools
install_missing etcd etcd-server
install_missing etcdctl etcd-client
install_missing openssl openssl
install_missing setpriv util-linux
# The etcd backend is built with the compiler of protocol buffers and its bundled files.
[ -n "${PROTOC:-}" ] || install_missing protoc protobuf-compiler
has_proto_files || install_package libprotobuf-dev "what comes with \`protoc\`"
# For the clients of other languages that share locks with ours.
install_missing python3 python3
python3 -m ensurepip --version >/dev/null 2>&1 ||
    install_missing "python3 with ensurepip" python3-venv
install_component fmt rustfmt
install_component clippy clippy

say "formatting"
cargo fmt --all --check

say "each feature alone, none, and all: warnings are errors"
for features in "" sqlite redis etcd cli; do
    cargo clippy --quiet -p lockkit --no-default-features --features "$features" -- -D warnings
done
cargo clippy --quiet --workspace --all-features --all-targets -- -D warnings

say "no feature, no database driver"
if cargo tree -p lockkit --no-default-features --edges normal | grep -E 'sqlx|libsqlite3|redis|rustls|etcd|tonic'; then
    fail "the facade without features depends on a database driver"
fi

say "documentation: warnings are errors"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --all-features --no-deps

say "tests"
cargo test --workspace --all-features --no-fail-fast

scratch=$(mktemp -d)
if python3 -m venv "$scratch/env" &&
    "$scratch/env/bin/python3" -m pip download --quiet --no-deps --dest "$scratch" redis; then
    say "one lock shared with redis-py, which pip installs into a temporary environment"
    cargo test --quiet -p lockkit-redis --test neighbours -- --ignored
else
    # The one thing here that is optional: its package may not be had everywhere.
    say "pip cannot get redis-py: the tests that share a lock with it are NOT run"
fi
rm -rf "$scratch"

say "tests of the core on the portable clock"
RUSTFLAGS="--cfg lockkit_portable_clock" cargo test --quiet -p lockkit-core \
    --target-dir target/portable-clock

say "the main job"
cargo run --quiet --release --features sqlite --example oversell -- --json

say "everything passed"
