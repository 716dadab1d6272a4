#!/usr/bin/env bash
# Installs what building and testing need, and only what is missing. Safe to run twice.
#   setup.sh           compiler, libraries, a Python environment for the tests' clients
#   setup.sh --cuda    also NVIDIA's compiler from PyPI, where no CUDA toolkit stands
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }

packages=(
  g++ cmake ninja-build ccache git pkg-config python3 python3-venv ca-certificates
  libgrpc++-dev libssl-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libspdlog-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
  libpcre2-dev libicu-dev libgtest-dev libgmock-dev libbenchmark-dev prometheus-cpp-dev
)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null || {
    echo "setup.sh: these packages are missing and there is no apt-get to install them: ${missing[*]}" >&2
    exit 2
  }
  root=()
  if [ "$(id -u)" != 0 ]; then root=(sudo); fi
  say "installing: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
else
  say "all Debian packages are there"
fi

venv=build/venv
if [ ! -x $venv/bin/python ]; then
  say "making a Python environment in $venv"
  mkdir -p build
  /usr/bin/python3 -m venv $venv
fi
python_packages=(grpcio grpcio-reflection protobuf)
if ! $venv/bin/python -c 'import grpc, grpc_reflection' 2>/dev/null; then
  say "installing into $venv: ${python_packages[*]}"
  $venv/bin/pip install -q --disable-pip-version-check "${python_packages[@]}"
fi

if [ "${1:-}" = --cuda ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  if [ ! -x build/cuda/bin/nvcc ]; then
    wheels=(nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl)
    say "no CUDA toolkit here; installing NVIDIA's compiler into build/cuda: ${wheels[*]} 13.0.*"
    $venv/bin/pip install -q --disable-pip-version-check --no-deps --target build/cuda.new \
      "${wheels[@]/%/==13.0.*}"
    rm -rf build/cuda
    mv build/cuda.new/nvidia/cu13 build/cuda
    rm -rf build/cuda.new
    chmod +x build/cuda/bin/* build/cuda/nvvm/bin/* 2>/dev/null || true
  fi
  say "nvcc: build/cuda/bin/nvcc"
fi
