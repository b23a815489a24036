# Shared by the scripts: saying what is done, and installing what is missing.

say() { printf '\n==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# install_missing COMMAND PACKAGE: installs PACKAGE with apt-get unless COMMAND is there.
install_missing() {
    command -v "$1" >/dev/null 2>&1 && return 0
    command -v apt-get >/dev/null 2>&1 ||
        fail "\`$1\` is missing, and there is no apt-get; install it and try again"
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    say "\`$1\` is missing: $sudo apt-get install $2"
    $sudo apt-get update -qq && $sudo apt-get install -y -qq "$2" >/dev/null ||
        fail "could not install the package $2"
}

# install_component COMMAND COMPONENT: adds a component of the Rust toolchain through rustup.
install_component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 || fail "\`cargo $1\` is missing, and there is no rustup"
    say "\`cargo $1\` is missing: rustup component add $2"
    rustup component add "$2"
}
