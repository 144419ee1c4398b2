#!/usr/bin/env bash
# Fuzzers guided by coverage, for the block manager's C++ (libFuzzer, needs clang) and for the
# code that reads a learner's CUDA (Atheris). The argument is the number of seconds for each:
# PYTHON=.venv/bin/python bash tools/fuzz/fuzz.sh 60
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds="${1:-60}" python="${PYTHON:-python3}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/blocks" "$folder/texts"

clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Ikernels \
    tools/fuzz/block_manager.cpp -o "$folder/block_manager"
"$folder/block_manager" -max_total_time="$seconds" -max_len=400 -print_final_stats=1 -artifact_prefix="fuzz-" "$folder/blocks"
"$python" tools/fuzz/cuda_text.py -max_total_time="$seconds" -dict=tools/fuzz/cuda.dict -max_len=4000 -timeout=10 -print_final_stats=1 -artifact_prefix="fuzz-" \
    "$folder/texts"
