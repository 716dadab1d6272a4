#!/usr/bin/env bash
# Formats every C++ and CUDA file that git knows.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r clang-format -i
