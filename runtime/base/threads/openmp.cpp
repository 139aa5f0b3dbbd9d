#include "runtime/base/threads/openmp.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/team.h"
#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::runtime::openmp {
namespace {

// `for` with a static schedule: what is left of the calling thread's share.
struct StaticLoop {
  long start = 0, step = 1, trips = 0, chunk = 0;
  long next = 0; // chunk of this share, counted
};
thread_local StaticLoop loop;

struct Function {
  const char *name;
  void *address;
};
const Function functions[] = {{"GOMP_parallel_start", reinterpret_cast<void *>(parallelStart)},
                              {"GOMP_parallel_end", reinterpret_cast<void *>(parallelEnd)},
                              {"GOMP_barrier", reinterpret_cast<void *>(barrier)},
                              {"GOMP_loop_static_start", reinterpret_cast<void *>(loopStart)},
                              {"GOMP_loop_static_next", reinterpret_cast<void *>(loopNext)},
                              {"GOMP_loop_end_nowait", reinterpret_cast<void *>(loopEnd)},
                              {"omp_get_thread_num", reinterpret_cast<void *>(threadNumber)},
                              {"omp_get_num_threads", reinterpret_cast<void *>(threadCount)},
                              {"omp_get_max_threads", reinterpret_cast<void *>(mostThreads)},
                              {"omp_in_parallel", reinterpret_cast<void *>(isParallel)}};

// Kinds of entries that hold a function's address.
#if defined(__aarch64__)
constexpr unsigned slotKinds[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr unsigned slotKinds[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#endif

// A library's dynamic section, and its entries for functions of others.
struct Library {
  ElfW(Addr) base;
  const ElfW(Rela) * tables[2] = {}; // of calls, of data
  size_t bytes[2] = {};
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;

  explicit Library(const link_map &map) : base(map.l_addr) {
    for (const ElfW(Dyn) *entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;
      const void *at = reinterpret_cast<const void *>(value < base ? base + value : value); // glibc has added it
      if (entry->d_tag == DT_JMPREL) tables[0] = static_cast<const ElfW(Rela) *>(at);
      if (entry->d_tag == DT_RELA) tables[1] = static_cast<const ElfW(Rela) *>(at);
      if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym) *>(at);
      if (entry->d_tag == DT_STRTAB) names = static_cast<const char *>(at);
      if (entry->d_tag == DT_PLTRELSZ) bytes[0] = entry->d_un.d_val;
      if (entry->d_tag == DT_RELASZ) bytes[1] = entry->d_un.d_val;
    }
  }

  // How many entries now lead here.
  Result<size_t> bind() const {
    size_t bound = 0;
    for (int table = 0; table < 2; ++table)
      for (size_t i = 0; i < bytes[table] / sizeof(ElfW(Rela)); ++i) {
        const ElfW(Rela) &entry = tables[table][i];
        const std::string_view name = names + symbols[ELF64_R_SYM(entry.r_info)].st_name;
        if (!name.starts_with("GOMP_") && !name.starts_with("omp_")) continue;
        const auto *found = std::ranges::find(functions, name, &Function::name);
        if (found == std::end(functions) ||
            std::ranges::find(slotKinds, ELF64_R_TYPE(entry.r_info)) == std::end(slotKinds))
          return runError("it calls OpenMP's " + std::string(name) + ", which is not known");
        *reinterpret_cast<void **>(base + entry.r_offset) = found->address;
        ++bound;
      }
    return bound;
  }
};

// What the loader has made read-only after it filled in the entries; empty: nothing.
struct Sealed {
  std::byte *begin = nullptr;
  size_t bytes = 0;

  Sealed(const void *image, ElfW(Addr) base) {
    const auto &header = *static_cast<const ElfW(Ehdr) *>(image);
    const auto *parts = reinterpret_cast<const ElfW(Phdr) *>(static_cast<const std::byte *>(image) + header.e_phoff);
    const ElfW(Addr) page = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
    for (const ElfW(Phdr) *part = parts; part < parts + header.e_phnum; ++part)
      if (part->p_type == PT_GNU_RELRO) {
        begin = reinterpret_cast<std::byte *>((base + part->p_vaddr) & -page);
        bytes = ((base + part->p_vaddr + part->p_memsz) & -page) - reinterpret_cast<ElfW(Addr)>(begin);
      }
  }
  bool allow(int access) const { return bytes == 0 || ::mprotect(begin, bytes, access) == 0; }
};

} // namespace

void parallelStart(void (*body)(void *), void *data, unsigned threads) {
  Team::ofThisThread().begin(body, data, threads ? threads : static_cast<unsigned>(currentThreads()));
}
void parallelEnd() { Team::ofThisThread().end(); }
void barrier() { Team::meet(); }

bool loopNext(long *first, long *last) {
  const long share = Team::share(), shares = Team::shares();
  long from = 0, to = 0;
  if (loop.chunk == 0) { // one range each, the first shares one iteration longer
    if (loop.next++ > 0) return false;
    const long each = loop.trips / shares, more = loop.trips % shares;
    from = share * each + std::min(share, more);
    to = from + each + (share < more ? 1 : 0);
  } else {
    from = (loop.next++ * shares + share) * loop.chunk;
    to = std::min(from + loop.chunk, loop.trips);
  }
  if (from >= to) return false;
  *first = loop.start + from * loop.step;
  *last = loop.start + to * loop.step;
  return true;
}
bool loopStart(long start, long end, long step, long chunk, long *first, long *last) {
  const long trips = step > 0 ? (end - start + step - 1) / step : (end - start + step + 1) / step;
  loop = {start, step, std::max(0L, trips), chunk, 0};
  return loopNext(first, last);
}
void loopEnd() {}

int threadNumber() { return static_cast<int>(Team::share()); }
int threadCount() { return static_cast<int>(Team::shares()); }
int mostThreads() { return currentThreads(); }
int isParallel() { return Team::isWorking() ? 1 : 0; }

Status bind(const void *inside) {
  Dl_info where{};
  link_map *map = nullptr;
  if (::dladdr1(inside, &where, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) == 0 || !map)
    return runError("a library whose loops are to run on the ranks' threads is not loaded");
  const Sealed sealed(where.dli_fbase, map->l_addr);
  if (!sealed.allow(PROT_READ | PROT_WRITE))
    return runError(std::string(where.dli_fname) + ": the system keeps its calls of OpenMP from being replaced");
  Result<size_t> bound = Library(*map).bind();
  (void)sealed.allow(PROT_READ);
  if (!bound) return runError(std::string(where.dli_fname) + ": " + bound.status().message());
  if (*bound == 0)
    return runError(std::string(where.dli_fname) + ": calls nothing of GCC's OpenMP; build it with that");
  return Status::ok();
}

} // namespace cleave::runtime::openmp
