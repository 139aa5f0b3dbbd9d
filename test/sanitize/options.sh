# Sourced by ./dev for builds with sanitizers (cmake/sanitize.cmake): what they look for, and how they end.
# container_overflow: the standard library of the prebuilt libraries does not mark the ends of its containers.
# user_poisoning: LLVM's allocators poison what they have not handed out yet, where their code is in a header; the same
# allocator's code in the prebuilt libraries hands it out without a word.
# handle_sigbus: a mapped file that shrinks is ours to tell (runtime/base/mapped_file.h).
export ASAN_OPTIONS=handle_sigbus=0:detect_container_overflow=0:allow_user_poisoning=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=handle_sigbus=0:halt_on_error=1:second_deadlock_stack=1
export LSAN_OPTIONS=suppressions=$ROOT/test/sanitize/leak.supp:print_suppressions=0
# Open MPI is built for no sanitizer. It unloads its plugins, with what they hold, before leaks are counted; and how its
# threads wait for each other is not seen. Its ranks look for everything else.
export OMPI_MCA_mca_base_env_list="ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0;\
TSAN_OPTIONS=$TSAN_OPTIONS:ignore_noninstrumented_modules=1:report_mutex_bugs=0:detect_deadlocks=0"
