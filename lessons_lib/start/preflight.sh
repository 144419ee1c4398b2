#!/bin/sh
# Says plainly what this machine lacks before anything is installed. Usage: preflight.sh PYTHON
python=$1

lacks() {
    echo
    echo "  $1"
    echo "  Debian, Ubuntu:  sudo apt-get install $2"
    echo "  Fedora:          sudo dnf install $3"
    echo "  macOS:           $4"
    echo "  Or with conda:   conda env create -f environment.yml"
    echo
    exit 1
}

if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    lacks "Python 3.11 or newer is needed, and ${python:-python3} is not. Another one: make lab PYTHON=/path/to/python3.12" \
        "python3 python3-venv python3-dev" "python3 python3-devel" "brew install python"
fi
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    lacks "Python's venv module is missing." "python3-venv" "python3" "brew install python"
"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    lacks "Python's C headers (Python.h) are missing; the lessons compile C++ for Python." "python3-dev" "python3-devel" "brew install python"
# On macOS there is a c++ that does nothing but ask to be installed. xcode-select knows.
{ command -v "${CXX:-c++}" && { ! command -v xcode-select || xcode-select -p; }; } >/dev/null 2>&1 ||
    lacks "A C++ compiler is missing; the lessons compile C++." "g++" "gcc-c++" "xcode-select --install"
