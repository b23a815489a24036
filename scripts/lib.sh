# Shared by the scripts: saying what is done, and installing what is missing.

say() { printf '\n==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# install_missing COMMAND PACKAGE: installs PACKAGE with apt-get unless COMMAND is there.
install_missing() {
    command -v "$1" >/dev/null 2>&1 || install_package "$2" "\`$1\`"
}

# install_package PACKAGE WHAT: installs PACKAGE with apt-get, because WHAT is missing.
install_package() {
    command -v apt-get >/dev/null 2>&1 ||
        fail "$2 is missing, and there is no apt-get; install it and try again"
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    say "$2 is missing: $sudo apt-get install $1"
    $sudo apt-get update -qq && $sudo apt-get install -y -qq "$1" >/dev/null ||
        fail "could not install the package $1"
}

# has_proto_files: whether the protocol buffer compiler finds the files that come with it.
has_proto_files() {
    printf 'syntax = "proto3";\nimport "google/protobuf/empty.proto";\n' |
        "${PROTOC:-protoc}" -I/dev ${PROTOC_INCLUDE:+-I"$PROTOC_INCLUDE"} \
            --descriptor_set_out=/dev/null /dev/stdin >/dev/null 2>&1
}

# install_component COMMAND COMPONENT: adds a component of the Rust toolchain through rustup.
install_component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 || fail "\`cargo $1\` is missing, and there is no rustup"
    say "\`cargo $1\` is missing: rustup component add $2"
    rustup component add "$2"
}
