#!/usr/bin/env bash
# Installs the Debian packages of tools/packages.txt that are missing, then
# configures and builds. Usage: tools/setup.sh [ninja target...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n==> %s\n' "$*"; }

missing=()
while read -r package _; do
  case "$package" in '' | '#'*) continue ;; esac
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null |
    grep -qx installed || missing+=("$package")
done < tools/packages.txt

if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${#missing[@]} packages: ${missing[*]}"
  root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || {
      echo "error: packages are missing and neither root nor sudo is at hand: ${missing[*]}" >&2
      exit 1
    }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
  apt-cache show clang-22 > /dev/null 2>&1 || {
    echo "error: the package sources have no clang-22; enable bookworm-security, or add the LLVM project's repository for release 22" >&2
    exit 1
  }
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" > /dev/null
fi

if [ ! -f build/build.ninja ]; then
  say "configuring"
  cmake --preset default > build-configure.log 2>&1 || {
    cat build-configure.log >&2
    exit 1
  }
  mkdir -p build && mv build-configure.log build/configure.log
fi
say "building"
ninja -C build "$@"
