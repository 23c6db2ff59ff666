# To be read by `.` from another script: find_python sets $python to the interpreter that everything is built with, the
# first that is of a version we support and can make virtual environments. Empty when there is none.

find_python() {
    python=""
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c '
import sys, venv, ensurepip
sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1 </dev/null; then
            python=$candidate
            return
        fi
    done
}
