//! Wrong usage, help, the default file, and secrets.

use std::os::unix::fs::PermissionsExt;

use crate::world::{End, World};

fn lockkit(world: &World, words: &[&str]) -> End {
    world.start(&mut world.lockkit(words)).end()
}

#[track_caller]
fn refused(world: &World, flags: &[&str], hint: &str) {
    let end = world.run(flags, "touch started").end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(64), ""), "{flags:?}: {}", end.stderr);
    assert!(end.stderr.starts_with("lockkit: "), "{}", end.stderr);
    assert!(end.stderr.contains(hint), "{flags:?}: {}", end.stderr);
    assert!(!world.exists("started"), "{flags:?}");
}

#[test]
fn wrong_usage_is_64_and_says_what_is_right() {
    let world = World::new();
    refused(&world, &["--ttl", "5"], "500ms, 30s or 5m");
    refused(&world, &["--permits", "0"], "--permits");
    refused(&world, &["--no-wait", "--wait", "1s"], "--no-wait");
    refused(&world, &["--shared", "--permits", "2"], "--permits");
    refused(&world, &["--frobnicate"], "--frobnicate");
    for words in [&["run"][..], &["run", "key"], &["run", "key", "true"], &[], &["walk"]] {
        let end = lockkit(&world, words);
        assert_eq!((end.code, end.stdout.as_str()), (Some(64), ""), "{words:?}: {}", end.stderr);
    }
    assert!(!world.exists("locks.db"), "nothing was touched");
}

#[test]
fn a_grace_above_a_third_of_the_ttl_is_refused() {
    let world = World::new();
    refused(&world, &["--ttl", "3s", "--grace", "1001ms"], "a third of the TTL");
    assert!(!world.exists("locks.db"), "nothing was touched");
    let end = world.run(&["--ttl", "3s", "--grace", "1s"], "exit 5").end();
    assert_eq!(end.code, Some(5), "{}", end.stderr);
    // The TTL of the URL counts too.
    let url = format!("{}?ttl=3s", world.url());
    let end = lockkit(&world, &["run", "--url", &url, "--grace", "1001ms", "k", "--", "true"]);
    assert_eq!(end.code, Some(64), "{}", end.stderr);
}

#[test]
fn bad_keys_and_urls_are_64() {
    let world = World::new();
    let long = "k".repeat(513);
    for (key, url) in [
        ("", world.url()),
        (&long, world.url()),
        ("k", "memory:".to_owned()),
        ("k", "nosuch:x".to_owned()),
        ("k", "locks.db".to_owned()),
        ("k", "zk://h".to_owned()),
        ("k", "redis://".to_owned()),
        ("k", format!("{}?tll=5s", world.url())),
    ] {
        let end = lockkit(&world, &["run", "--url", &url, key, "--", "touch", "started"]);
        assert_eq!((end.code, end.stdout.as_str()), (Some(64), ""), "{key} {url}: {}", end.stderr);
        assert!(!world.exists("started"), "{key} {url}");
    }
}

#[test]
fn help_explains_every_flag_and_every_code() {
    let world = World::new();
    let end = lockkit(&world, &["run", "--help"]);
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    for word in [
        "--url",
        "LOCKKIT_URL",
        "--ttl",
        "--wait",
        "--no-wait",
        "--shared",
        "--permits",
        "--min-hold",
        "--grace",
        "--conflict-exit-code",
        "LOCKKIT_KEY",
        "LOCKKIT_FENCE",
        "LOCKKIT_BACKEND",
        "30s",
        "TTL/6",
        "TTL/3",
        "no limit",
        " 64 ",
        " 69 ",
        " 70 ",
        " 75 ",
        " 76 ",
        " 77 ",
        " 126 ",
        " 127 ",
        "128+n",
    ] {
        assert!(end.stdout.contains(word), "{word} is not in:\n{}", end.stdout);
    }
    assert_eq!(lockkit(&world, &["--version"]).code, Some(0));
}

#[test]
fn the_default_file_is_in_a_private_directory_of_the_user() {
    let world = World::new();
    let state = world.path("state of 100%");
    let words = ["run", "key", "--", "true"];
    // An empty LOCKKIT_URL is as good as none.
    let end = world
        .start(world.lockkit(&words).env("XDG_STATE_HOME", &state).env("LOCKKIT_URL", ""))
        .end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert!(state.join("lockkit/locks.db").is_file());
    let mode = std::fs::metadata(state.join("lockkit")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let home = world.path("home");
    let mut command = world.lockkit(&words);
    let end = world.start(command.env_remove("XDG_STATE_HOME").env("HOME", &home)).end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(home.join(".local/state/lockkit/locks.db").is_file());

    let mut command = world.lockkit(&words);
    let end = world.start(command.env_remove("XDG_STATE_HOME").env_remove("HOME")).end();
    assert_eq!(end.code, Some(64));
    assert!(end.stderr.contains("XDG_STATE_HOME"), "{}", end.stderr);
}

#[test]
fn the_environment_names_the_store_and_the_flag_comes_first() {
    let world = World::new();
    let other = format!("sqlite:{}", world.path("other.db").display());
    let words = ["run", "key", "--", "true"];
    assert_eq!(world.start(world.lockkit(&words).env("LOCKKIT_URL", &other)).end().code, Some(0));
    assert!(world.exists("other.db") && !world.exists("locks.db"));
    let words = ["run", "--url", &world.url(), "key", "--", "true"];
    let mut command = world.lockkit(&words);
    assert_eq!(world.start(command.env("LOCKKIT_URL", "nosuch:x")).end().code, Some(0));
    assert!(world.exists("locks.db"));
}

#[test]
fn a_password_is_never_shown() {
    let world = World::new();
    let urls = [
        "redis://user:s3cret@host/0",
        "nosuch://user:s3cret@host/0",
        "s3cret@host",
        "redis://user:s3cret#@host",
        "sqlite:x?password=s3cret",
        "sqlite:x?ttl=s3cret",
        "sqlite:%zzs3cret",
    ];
    for url in urls {
        for words in [
            &["run", "--url", url, "k", "--", "true"][..],
            &["run", url, "k", "--", "true"],
            &["run", "k", url, "--", "true"],
            &["run", "--ulr", url, "k", "--", "true"],
            &["--url", url],
        ] {
            // What is not a URL cannot be told from other words.
            if url.contains("://") || words[1] == "--url" {
                let end = lockkit(&world, words);
                assert_ne!(end.code, Some(0), "{words:?}");
                let text = format!("{}{}", end.stdout, end.stderr);
                assert!(!text.contains("s3cret"), "{words:?}: {text}");
            }
        }
        let end = world.start(world.lockkit(&["run"]).env("LOCKKIT_URL", url)).end();
        assert!(!end.stderr.contains("s3cret"), "{}", end.stderr);
        let end = world.start(world.lockkit(&["run", "--help"]).env("LOCKKIT_URL", url)).end();
        assert!(!end.stdout.contains("s3cret"), "{}", end.stdout);
    }
}
