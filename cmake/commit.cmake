# cmake -DOUT=FILE -P commit.cmake: writes a header that names this tree's commit. FILE is left alone if it says so.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "not from a repository")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define CLEAVE_COMMIT \"${commit}\"\n")
