# Sourced by ./dev: installs Debian packages, and the pinned archives of other projects into $CLEAVE_DEPS.
# Each step is skipped when its stamp says that it is done. Only ONNX is compiled; the others come as libraries.

# Debian 12 packages: the compiler and MLIR, the libraries design.md names, and what the tests run.
DEBIAN_PACKAGES=(
  ca-certificates ccache chromium clang-22 clang-format-22 clang-tidy-22 iproute2 libbenchmark-dev libblis-serial-dev libcivetweb-dev libclang-rt-22-dev libcli11-dev
  libcurl4-openssl-dev libedit-dev libflatbuffers-dev libfmt-dev libgmock-dev libgomp1 libgoogle-perftools-dev
  libgtest-dev libhwloc-dev liblld-22-dev libmlir-22-dev libopenmpi-dev libpng-dev libprotobuf-dev libsodium-dev libspdlog-dev
  libturbojpeg0-dev libxml2-dev libxxhash-dev libyaml-cpp-dev libzstd-dev lld-22 llvm-22-dev llvm-22-tools mlir-22-tools ninja-build nlohmann-json3-dev openmpi-bin
  protobuf-compiler python3 python3-numpy python3-pip python3-yaml unzip zlib1g-dev
)

# project, file, SHA-256
ONNX=(onnx onnx-1.22.0.tar.gz ef40c0aaf0b643857ea9306fc7eddce17eaf9fb0407e4801f1fc5758443a38e0)
HIGHS=(highspy highspy-1.15.1-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl
  a24329c328942b37a6a318ecf163d07dd387974f071b98b4498725eaea80f06f)
ONEDNN_DEVEL=(onednn-devel-cpu-gomp onednn_devel_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
  9763c69e8c907e119056bd52ad918ca84ac9ba939d130a99dfa95ccca3e5e284)
ONEDNN=(onednn-cpu-gomp onednn_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
  2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb)
# NVIDIA's assembler for GPU kernels, and its library of functions for them; no GPU or driver is needed.
PTXAS=(nvidia-cuda-nvcc-cu12 nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
  5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0)
# Of ./dev pack: 2.30 and later run several ranks on one GPU.
NCCL=(nvidia-nccl-cu13 nvidia_nccl_cu13-2.31.2-py3-none-manylinux_2_18_x86_64.whl
  0bcaf0308854cb55fcc35af72e2c83143f3b71e65a4e865e2c586b1cdcdb5ae0)
# Rules of accessibility, which the tests try on the report's page in a browser.
AXE=(axe-playwright-python axe_playwright_python-0.1.8-py3-none-any.whl
  fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8)
CMAKE_VERSION=3.31.6  # ONNX needs 3.26 or later, Debian 12 has 3.25

install_debian_packages() {
  local missing=() package
  for package in "${DEBIAN_PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" = 0 ] || die "these Debian packages are missing, and only root can install them: ${missing[*]}"
  step "${#missing[@]} Debian packages" apt_install "${missing[@]}"
}

apt_install() {
  logged apt apt-get update
  DEBIAN_FRONTEND=noninteractive logged apt apt-get install -y --no-install-recommends "$@"
}

fetch() { # fetch PROJECT FILE SHA256: into $CLEAVE_DEPS/archives
  logged "fetch-$1" /usr/bin/python3 "$ROOT/cmake/fetch_from_index.py" "$1" "$2" "$3" "$CLEAVE_DEPS/archives"
}

unpack() { # unpack FILE FOLDER: the archive's single top folder becomes FOLDER
  rm -rf "$2" && mkdir -p "$2" && tar xf "$CLEAVE_DEPS/archives/$1" -C "$2" --strip-components=1
}

once() { # once NAME HASH TITLE COMMAND...: a step that is left out if it already succeeded for HASH
  local stamp="$CLEAVE_DEPS/$1.stamp"
  [ "$(cat "$stamp" 2>/dev/null)" = "$2" ] && return 0
  step "${@:3}"
  echo "$2" >"$stamp"
}

get_cmake() {
  logged cmake /usr/bin/python3 -m pip install --quiet --no-deps --target "$CLEAVE_DEPS/cmake/site" --upgrade \
    "cmake==$CMAKE_VERSION"
}

get_onednn() { # a wheel is a zip archive whose data folder holds lib/ and include/
  fetch "${ONEDNN_DEVEL[@]}"
  fetch "${ONEDNN[@]}"
  local to="$CLEAVE_DEPS/onednn" file
  rm -rf "$to" && mkdir -p "$to"
  for file in "${ONEDNN_DEVEL[1]}" "${ONEDNN[1]}"; do
    logged onednn unzip -q -o "$CLEAVE_DEPS/archives/$file" -d "$to/wheel"
    cp -r "$to"/wheel/*.data/data/. "$to/"
    rm -rf "$to/wheel"
  done
  ln -sf libdnnl.so.3.2 "$to/lib/libdnnl.so.3" && ln -sf libdnnl.so.3 "$to/lib/libdnnl.so"
}

get_ptxas() {
  fetch "${PTXAS[@]}"
  local to="$CLEAVE_DEPS/ptxas"
  rm -rf "$to" && mkdir -p "$to"
  logged ptxas unzip -q -o "$CLEAVE_DEPS/archives/${PTXAS[1]}" "nvidia/cuda_nvcc/bin/ptxas" \
    "nvidia/cuda_nvcc/nvvm/libdevice/*" -d "$to/wheel"
  cp -r "$to"/wheel/nvidia/cuda_nvcc/. "$to/"
  chmod +x "$to/bin/ptxas"
  rm -rf "$to/wheel"
}

get_nccl() {
  fetch "${NCCL[@]}"
  rm -rf "$CLEAVE_DEPS/nccl"
  logged nccl unzip -q -o -j "$CLEAVE_DEPS/archives/${NCCL[1]}" "nvidia/nccl/lib/libnccl.so.2" -d "$CLEAVE_DEPS/nccl"
  rm "$CLEAVE_DEPS/archives/${NCCL[1]}"
}

get_highs() { # Python's wheel holds the library, but no headers
  fetch "${HIGHS[@]}"
  local to="$CLEAVE_DEPS/highs"
  rm -rf "$to" && mkdir -p "$to"
  logged highs unzip -q -o -j "$CLEAVE_DEPS/archives/${HIGHS[1]}" "highspy/libhighs.so.1" -d "$to/lib"
}

get_axe() {
  fetch "${AXE[@]}"
  rm -rf "$CLEAVE_DEPS/axe"
  logged axe unzip -q -o -j "$CLEAVE_DEPS/archives/${AXE[1]}" "axe_playwright_python/axe.min.js" -d "$CLEAVE_DEPS/axe"
}

get_torch() { # without NVIDIA's libraries, which are 4 GB
  local to="$CLEAVE_DEPS/torch"
  rm -rf "$to"
  logged torch /usr/bin/python3 -m pip install --quiet --no-deps --no-compile --no-cache-dir --target "$to/site" \
    -r "$ROOT/cmake/torch.txt"
  logged torch-stubs /usr/bin/python3 "$ROOT/test/python_modules/stub_nvidia.py" "$to/site"
}

CMAKE_COMPILER_FLAGS=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22
  -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

# Without optimization: its schemas are read once by each run, and compiling them took longer than all else of it.
build_onnx() {
  fetch "${ONNX[@]}"
  local source="$CLEAVE_DEPS/source/onnx"
  unpack "${ONNX[1]}" "$source"
  logged onnx "$CMAKE" -S "$source" -B "$source/build" "${CMAKE_COMPILER_FLAGS[@]}" -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
    -DCMAKE_INSTALL_PREFIX="$CLEAVE_DEPS/onnx" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DONNX_USE_UNITY_BUILD=ON \
    -DONNX_GEN_PB_TYPE_STUBS=OFF -DONNX_BUILD_PYTHON=OFF -DONNX_BUILD_TESTS=OFF -DONNX_USE_PROTOBUF_SHARED_LIBS=ON
  logged onnx "$CMAKE" --build "$source/build" --target install
  rm -rf "$source"
}

# Downloads of packages that need no build run while ONNX is compiled.
install_dependencies() {
  mkdir -p "$CLEAVE_DEPS" "$LOGS"
  install_debian_packages
  local downloads=() job
  once onednn "${ONEDNN[2]}" "oneDNN 3.2.0" get_onednn & downloads+=($!)
  once ptxas "${PTXAS[2]}" "ptxas 12.9.86" get_ptxas & downloads+=($!)
  once highs "${HIGHS[2]}" "HiGHS 1.15.1" get_highs & downloads+=($!)
  once axe "${AXE[2]}" "axe-core" get_axe & downloads+=($!)
  once torch "$(cat "$ROOT/cmake/torch.txt" "$ROOT/test/python_modules/stub_nvidia.py" | sha256sum)" "PyTorch 2.15.0" get_torch &
  downloads+=($!)
  once cmake "$CMAKE_VERSION" "CMake $CMAKE_VERSION" get_cmake
  once onnx "${ONNX[2]}" "ONNX 1.22.0" build_onnx
  for job in "${downloads[@]}"; do wait "$job"; done
}
