#!/usr/bin/env bash
# Builds and runs every test; the last line is "N passed, N failed, N skipped".
#   test.sh             release build, all tests
#   test.sh --sanitize  all but the real model again under ASan+UBSan and, without the server, under
#                       TSan (Debian's gRPC and protobuf are built without it: their own locks would
#                       be unknown to it, and protobuf's headers lay out classes otherwise under it)
# PF_JOBS sets the number of jobs (default: the CPUs).
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${PF_JOBS:-$(nproc)}
scripts/setup.sh --cuda
scripts/get_model.sh smollm2

build() { # preset
  echo "== building $1"
  cmake --preset "$1" >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
  cmake --build --preset "$1" -j "$jobs" | grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Generating)' || true
  cmake --build --preset "$1" -j "$jobs" >/dev/null
}

status=0
mkdir -p build
build release
ctest --test-dir build/release --output-on-failure -j "$jobs" || status=1
results=(build/release)
if [ "${1:-}" = --sanitize ]; then
  for preset in asan tsan; do
    build $preset
    ctest --test-dir build/$preset --output-on-failure -j "$jobs" -L 'unit|engine|server' -LE real || status=1
    results+=(build/$preset)
  done
fi
/usr/bin/python3 scripts/count_tests.py "${results[@]}" || status=1
exit $status
