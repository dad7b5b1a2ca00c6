#!/usr/bin/env bash
# Installs the Debian packages that the build needs and that are missing. Needs root or sudo only if one is.
# Without clang's development files braze still builds and compiles kernels with the system's C++ compiler.
set -eu
packages=(g++ make python3-venv ccache mold libfmt-dev doctest-dev zlib1g-dev libzstd-dev
          llvm-19-dev libclang-19-dev llvm-19-tools)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=(env DEBIAN_FRONTEND=noninteractive)
[ "$(id -u)" -eq 0 ] || as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
