# The installed files, and the packages that CPack makes of them (package/make). The tree can be moved:
#   bin/cleave   include/cleave_runtime.h   lib/libcleave_runtime.so, libcleave_comm_mpi.so   lib/cleave/ libraries of others
#   share/ completions of bash, zsh and fish, the manual's page, licences
# DT_RPATH, unlike DT_RUNPATH, holds for what those libraries need, too.
foreach(target cleave cleave_runtime_shared)
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/cleave")
endforeach()
install(TARGETS cleave cleave_runtime_shared RUNTIME_DEPENDENCY_SET others LIBRARY DESTINATION lib)
install(FILES runtime/capi/cleave_runtime.h DESTINATION include)
install(DIRECTORY ${CMAKE_BINARY_DIR}/share DESTINATION .) # completions and the manual's page
if(TARGET cleave_comm_mpi) # MPI itself is the machine's
  install(TARGETS cleave_comm_mpi LIBRARY DESTINATION lib)
endif()
# Not those that every system with glibc has; manylinux names the same.
install(RUNTIME_DEPENDENCY_SET others DESTINATION lib/cleave
        PRE_EXCLUDE_REGEXES "^(ld-linux-x86-64|lib(c|m|dl|pthread|rt|gcc_s|stdc\\+\\+|z))\\.so")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/cleave)
install(CODE "execute_process(COMMAND /usr/bin/python3 ${PROJECT_SOURCE_DIR}/package/notices
  \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX} ${CLEAVE_DEPS} COMMAND_ERROR_IS_FATAL ANY)")

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # of all targets, which the tests are among
set(CPACK_GENERATOR TXZ DEB)
set(CPACK_PACKAGE_NAME cleave)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The developers of Cleave")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Splits the training of exported ONNX models over devices")
set(CPACK_PACKAGE_FILE_NAME cleave-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0) # all cores
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12), zlib1g")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
include(CPack)
