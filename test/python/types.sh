#!/bin/bash
# types.sh TREE ENVIRONMENT: mypy and pyright over the installed package, its stubs, and a program that uses them.
set -euo pipefail
tools=${WEFT_CACHE:-$1/.cache}/python
export PATH=$PATH:$tools/bin  # Node.js, where setup had to fetch it
cd "$2"
cp "$1/python/test/typed_program.py" .
"$tools/bin/mypy" --python-executable "$2/bin/python" --strict --no-warn-return-any --no-warn-unused-ignores --no-error-summary -p weft
"$tools/bin/mypy" --python-executable "$2/bin/python" --strict --no-error-summary typed_program.py
cat > pyrightconfig.json <<< "{\"include\": [\"typed_program.py\"], \"venvPath\": \"$(dirname "$2")\", \"venv\": \"$(basename "$2")\"}"
node "$tools/pyright/index.js" -p pyrightconfig.json
# What must be refused.
cat > wrong.py <<'PYTHON'
import weft
weft.softmax(weft.ones(2), axis="last")
weft.ones(2).nonsense()
weft.mse_loss(weft.ones(2), weft.ones(2), reduction="most")
PYTHON
for checker in "$tools/bin/mypy --python-executable $2/bin/python --strict" "node $tools/pyright/index.js --pythonpath $2/bin/python"; do
  found=$($checker wrong.py | grep -c "error:\|error\b.*report" || true)
  [ "$found" -ge 3 ] || { echo "$checker found only $found of three mistakes"; $checker wrong.py; exit 1; }
done
