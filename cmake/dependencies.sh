# Sourced by ./dev: installs Debian packages and builds the pinned source archives into $CLEAVE_DEPS.
# Each step is skipped when its stamp says that it is done.

# Debian 12 packages: the compiler and MLIR, the libraries design.md names, and what the tests run.
DEBIAN_PACKAGES=(
  ca-certificates ccache clang-22 clang-format-22 clang-tidy-22 iproute2 libbenchmark-dev libcli11-dev
  libcurl4-openssl-dev libedit-dev libflatbuffers-dev libfmt-dev libgmock-dev libgomp1 libgoogle-perftools-dev
  libgtest-dev libhwloc-dev liblld-22-dev libmlir-22-dev libopenmpi-dev libpng-dev libprotobuf-dev libspdlog-dev
  libturbojpeg0-dev libxml2-dev libyaml-cpp-dev libzstd-dev lld-22 llvm-22-dev llvm-22-tools mlir-22-tools ninja-build nlohmann-json3-dev openmpi-bin
  protobuf-compiler python3 python3-numpy python3-pip python3-venv unzip zlib1g-dev
)

# project, file, SHA-256
ONNX=(onnx onnx-1.22.0.tar.gz ef40c0aaf0b643857ea9306fc7eddce17eaf9fb0407e4801f1fc5758443a38e0)
HIGHS=(highspy highspy-1.15.1.tar.gz 20ed2fbf1cb64bf3044ee6632364b7e2653d93e6901e2b19fd3d5df10702e8c5)
ONEDNN_DEVEL=(onednn-devel-cpu-gomp onednn_devel_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
  9763c69e8c907e119056bd52ad918ca84ac9ba939d130a99dfa95ccca3e5e284)
ONEDNN=(onednn-cpu-gomp onednn_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
  2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb)
# NVIDIA's assembler for GPU kernels, and its library of functions for them; no GPU or driver is needed.
PTXAS=(nvidia-cuda-nvcc-cu12 nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
  5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0)
CMAKE_VERSION=3.31.6  # ONNX needs 3.26 or later, Debian 12 has 3.25

install_debian_packages() {
  local missing=() package
  for package in "${DEBIAN_PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" = 0 ] || die "these Debian packages are missing, and only root can install them: ${missing[*]}"
  logged apt apt-get update
  DEBIAN_FRONTEND=noninteractive logged apt apt-get install -y --no-install-recommends "${missing[@]}"
}

fetch() { # fetch PROJECT FILE SHA256: into $CLEAVE_DEPS/archives
  logged "fetch-$1" /usr/bin/python3 "$ROOT/cmake/fetch_from_index.py" "$1" "$2" "$3" "$CLEAVE_DEPS/archives"
}

unpack() { # unpack FILE FOLDER: the archive's single top folder becomes FOLDER
  rm -rf "$2" && mkdir -p "$2" && tar xf "$CLEAVE_DEPS/archives/$1" -C "$2" --strip-components=1
}

built() { # built NAME HASH COMMAND...: run COMMAND unless it already succeeded for HASH
  local stamp="$CLEAVE_DEPS/$1.stamp"
  [ "$(cat "$stamp" 2>/dev/null)" = "$2" ] && return 0
  "${@:3}"
  echo "$2" >"$stamp"
}

get_cmake() {
  /usr/bin/python3 -m venv --without-pip "$CLEAVE_DEPS/cmake" 2>/dev/null || mkdir -p "$CLEAVE_DEPS/cmake"
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

CMAKE_COMPILER_FLAGS=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22
  -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

build_onnx() {
  fetch "${ONNX[@]}"
  local source="$CLEAVE_DEPS/source/onnx"
  unpack "${ONNX[1]}" "$source"
  logged onnx "$CMAKE" -S "$source" -B "$source/build" "${CMAKE_COMPILER_FLAGS[@]}" \
    -DCMAKE_INSTALL_PREFIX="$CLEAVE_DEPS/onnx" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DONNX_GEN_PB_TYPE_STUBS=OFF \
    -DONNX_BUILD_PYTHON=OFF -DONNX_BUILD_TESTS=OFF -DONNX_USE_PROTOBUF_SHARED_LIBS=ON
  logged onnx "$CMAKE" --build "$source/build" --target install
  rm -rf "$source"
}

build_highs() {
  fetch "${HIGHS[@]}"
  local source="$CLEAVE_DEPS/source/highs"
  unpack "${HIGHS[1]}" "$source"
  mkdir -p "$source/app"
  : >"$source/app/CMakeLists.txt" # highspy's archive lacks these two files
  : >"$source/highs.pc.in"
  logged highs "$CMAKE" -S "$source" -B "$source/build" "${CMAKE_COMPILER_FLAGS[@]}" \
    -DCMAKE_INSTALL_PREFIX="$CLEAVE_DEPS/highs" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_CXX_EXE=OFF \
    -DBUILD_EXAMPLES=OFF -DBUILD_TESTING=OFF -DBUILD_SHARED_LIBS=OFF -DBUILD_SHARED_EXTRAS_LIB=OFF -DZLIB=OFF \
    -DPYTHON_BUILD_SETUP=OFF
  logged highs "$CMAKE" --build "$source/build" --target install
  rm -rf "$source"
}

install_dependencies() {
  mkdir -p "$CLEAVE_DEPS" "$LOGS"
  step "Debian packages" install_debian_packages
  step "CMake $CMAKE_VERSION" built cmake "$CMAKE_VERSION" get_cmake
  step "oneDNN 3.2.0" built onednn "${ONEDNN[2]}" get_onednn
  step "ptxas 12.9.86" built ptxas "${PTXAS[2]}" get_ptxas
  step "ONNX 1.22.0" built onnx "${ONNX[2]}" build_onnx
  step "HiGHS 1.15.1" built highs "${HIGHS[2]}" build_highs
}
