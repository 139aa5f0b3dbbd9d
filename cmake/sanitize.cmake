# CLEAVE_SANITIZE: a build whose own code is watched. The prebuilt libraries (MLIR, LLVM, oneDNN, ONNX) and the code that
# Cleave generates are not. `./dev fuzz` and `./dev test --sanitize` configure such builds, each in a folder of its own.
#
#   address   AddressSanitizer and UndefinedBehaviorSanitizer; libFuzzer sees which branches an input takes
#   thread    ThreadSanitizer
set(CLEAVE_SANITIZE "" CACHE STRING "address, thread, or nothing")
if(CLEAVE_SANITIZE)
  # Asserts of LLVM's headers (a cast to the wrong type, an index past the end) and of the standard library's hold here.
  string(REPLACE "-O3 -DNDEBUG" "-O1" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  string(REPLACE "-O3 -DNDEBUG" "-O1" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
  add_compile_options(-gline-tables-only -fno-omit-frame-pointer)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
if(CLEAVE_SANITIZE STREQUAL thread)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(CLEAVE_SANITIZE)
  # Seeing branches hardly lengthens compilation, so that fuzz targets and the suites can share this build.
  # vptr needs RTTI, which MLIR's code has not. function reads what stands before a function called by its address, where
  # generated code has nothing. float-cast-overflow is undefined, too, and not among `undefined`.
  set(watched -fsanitize=address,undefined,float-cast-overflow -fno-sanitize=vptr,function -fno-sanitize-recover=all)
  add_compile_options(${watched} -fsanitize-ignorelist=${CMAKE_SOURCE_DIR}/cmake/sanitize_ignore.txt)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(${watched})
endif()
