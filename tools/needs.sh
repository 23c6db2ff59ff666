#!/bin/sh
# What this machine must have before anything is built, and how to get it where it is missing.
#
#   sh tools/needs.sh setup    what `make setup` needs
#   sh tools/needs.sh test     the same, and what tests and benchmarks need beside it
#
# Every missing thing is printed at once, with its apt and its brew line. Nothing is changed, unless INSTALL=1 asks for
# it: then apt-get installs what it has, as on a fresh test machine. Plain sh and little else, because on such a machine
# there is little else.

set -u
cd "${0%/*}/.." || exit 1
. tools/python.sh

MIN_MEMORY_KB=7400000  # 8 GB, less what kernel and firmware keep for themselves
MIN_DISK_KB=9765625    # 10 GB

report="" apt="" brew="" wishes=""

# lack NAME WHAT_IS_WRONG APT_PACKAGES BREW_PACKAGES
lack() {
    report="$report
  $1: $2"
    [ -z "$3" ] || { apt="$apt $3"; report="$report
      apt-get install $3"; }
    [ -z "$4" ] || { brew="$brew $4"; report="$report
      brew install $4"; }
}

# What only some tests need: they skip without it. Where CI is set a skip is a failure, so there it is lacking.
wish() {
    if [ -n "${CI:-}" ] || [ "${INSTALL:-}" = 1 ]; then
        lack "$@"
    else
        wishes="$wishes
  $1: $2
      apt-get install $3
      brew install $4"
    fi
}

has() { command -v "$1" >/dev/null 2>&1; }

check_make() {
    said=$(make --version 2>/dev/null) || said=""
    case $said in
        "GNU Make 3.8"[1-9]* | "GNU Make "[4-9]* | "GNU Make "[1-9][0-9]*) ;;
        *) lack make "GNU make 3.81 or newer is needed" make make ;;
    esac
}

check_python() {
    find_python
    [ -n "$python" ] ||
        lack python "Python 3.11, 3.12 or 3.13 with venv is needed (choose one with PYTHON=...)" \
            "python3 python3-venv" python@3.12
}

# JAVA_HOME comes first, and alone when it is set: Spark and Kafka's tools would take it too.
check_java() {
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java" hint="; JAVA_HOME is $JAVA_HOME"; else java=java hint=""; fi
    said=$("$java" -version 2>&1 </dev/null) || said=""
    case $said in
        *'version "17'* | *'version "21'*) ;;
        *'version "'*)
            said=${said#*version \"}
            lack java "Java 17 or 21 is needed, \`$java -version\` says ${said%%\"*}$hint" \
                default-jre-headless openjdk@21 ;;
        *) lack java "Java 17 or 21 is needed, \`$java -version\` finds none$hint" default-jre-headless openjdk@21 ;;
    esac
}

check_memory() {
    kb=""
    if [ -r /proc/meminfo ]; then
        read -r _ kb _ </proc/meminfo
    elif has sysctl; then
        kb=$(($(sysctl -n hw.memsize) / 1024))
    fi
    [ -z "$kb" ] || [ "$kb" -ge "$MIN_MEMORY_KB" ] ||
        lack memory "8 GB of memory are needed, this machine has $((kb / 1000000))" "" ""
}

check_disk() {
    [ ! -e .venv/.stamp ] || return 0  # what is set up here already has been paid for
    has df || return 0
    kb=$(df -Pk . | { read -r _; read -r _ _ _ kb _; echo "$kb"; })
    [ "$kb" -ge "$MIN_DISK_KB" ] ||
        lack disk "10 GB of free disk are needed in this folder, there are $((kb / 1000000))" "" ""
}

# Programs with clients in other languages are built and run by the tests of tests/compat/.
check_languages() {
    { has node && has npm; } || wish node "node and npm are not on PATH (kafkajs)" "nodejs npm" node
    has go || wish go "go is not on PATH (sarama, franz-go)" golang-go go
    has cargo || wish cargo "cargo is not on PATH (rskafka)" cargo rust
    if [ -n "${JAVA_HOME:-}" ]; then javac="$JAVA_HOME/bin/javac"; else javac=javac; fi
    has "$javac" || wish javac "\`$javac\` is not there (Kafka Streams)" default-jdk-headless openjdk@21
}

check_all() {
    report="" apt="" brew="" wishes=""
    check_make
    has git || lack git "git is not on PATH" git git
    check_python
    check_java
    check_memory
    check_disk
    [ "$1" = test ] || return 0
    has mvn || lack mvn "mvn is not on PATH (it fetches Apache Kafka, the peer of the tests)" maven maven
    has cc || lack cc "no C compiler is on PATH (the benchmark's clients are C)" "gcc libc6-dev" gcc
    has kcat || lack kcat "kcat is not on PATH" kcat kcat
    check_languages
}

install_with_apt() {
    if [ "$(id -u)" = 0 ]; then sudo=""; else sudo="sudo -n"; fi
    export DEBIAN_FRONTEND=noninteractive
    echo "INSTALL=1: apt-get install$apt"
    $sudo apt-get update -qq </dev/null
    # shellcheck disable=SC2086  # a list of packages
    $sudo apt-get install -y -qq --no-install-recommends $apt </dev/null
}

check_all "${1:-setup}"
if [ -n "$apt" ] && [ "${INSTALL:-}" = 1 ] && has apt-get; then
    install_with_apt
    check_all "${1:-setup}"
fi
if [ -n "$report" ]; then
    echo "This machine lacks what is needed:$report" >&2
    [ -z "$apt" ] || printf 'All of it at once:\n  sudo apt-get install -y%s\n  brew install%s\n' "$apt" "$brew" >&2
    exit 1
fi
[ -z "$wishes" ] || echo "Some tests with other languages' clients will be skipped:$wishes" >&2
