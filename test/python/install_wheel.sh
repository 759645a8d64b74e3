#!/bin/bash
# install_wheel.sh TREE ENVIRONMENT: builds the wheel, and installs it in a fresh environment. NumPy is the system's.
set -euo pipefail
wheel=$(WEFT_PYTHON_BUILT=yes "$1/script/python")
rm -rf "$2"
"${WEFT_CACHE:-$1/.cache}/python/bin/python" -m venv --system-site-packages "$2"
"$2/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-index "$wheel"
cd "$2"
"$2/bin/python" -c 'import weft; assert (weft.ones(2) + 1).tolist() == [2, 2]; print(weft.__version__, weft.__file__)'
