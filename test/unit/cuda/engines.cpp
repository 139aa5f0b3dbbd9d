#include "test/unit/cuda/engines.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <glob.h>

namespace cleave::runtime::test {

Engines::Engines(bool deterministic) {
  plan.mutable_cuda()->set_target("sm_90");
  plan.mutable_cuda()->set_deterministic(deterministic);
  auto opened = cuda::Gpu::open(0, plan);
  EXPECT_TRUE(opened.isOk()) << opened.status().message();
  device = std::make_unique<cuda::CudaDevice>(*opened, dist::Mesh(), 0);
  EXPECT_TRUE(device->allocate(1 << 20).isOk());
}

std::string Engines::warningOf(const plan::Command &command) {
  Result<Prepared> prepared = device->prepare(command);
  return prepared ? (*prepared)->warning() : prepared.status().message();
}

std::vector<std::byte> Engines::run(const std::vector<plan::Command> &commands, std::vector<std::byte> memory) {
  std::vector<Prepared> prepared;
  for (const plan::Command &command : commands) {
    Result<Prepared> made = device->prepare(command);
    EXPECT_TRUE(made.isOk()) << made.status().message();
    if (!made) return {};
    prepared.push_back(std::move(*made));
  }
  const auto bytes = static_cast<int64_t>(memory.size());
  EXPECT_TRUE(device->finishPreparing().isOk());
  EXPECT_TRUE(device->write(0, memory.data(), bytes).isOk());
  for (const Prepared &one : prepared) EXPECT_TRUE(one->run().isOk());
  EXPECT_TRUE(device->synchronize().isOk());
  EXPECT_TRUE(device->read(0, memory.data(), bytes).isOk());
  return memory;
}

int64_t Engines::workspaceBytes() {
  EXPECT_TRUE(device->finishPreparing().isOk());
  return device->allocatedBytes() - (1 << 20);
}

static std::string realLibrary() {
  if (const char *given = std::getenv("FAKE_CUDNN_REAL")) return given;
  glob_t found{};
  const int missing = ::glob("/usr/local/cuda*/lib*/libcudnn.so.9", 0, nullptr, &found);
  const std::string library = missing ? "" : found.gl_pathv[0];
  ::globfree(&found);
  return library;
}

bool askedElsewhere(const std::string &test) {
  if (std::getenv("FAKE_CUDNN_PLANS")) return false;
  const std::string library = realLibrary();
  if (library.empty()) {
    [] { GTEST_SKIP() << "no cuDNN is installed"; }();
    return true;
  }
  const std::string command = fmt::format("FAKE_CUDNN_REAL={} FAKE_CUDNN_PLANS=1 LD_LIBRARY_PATH={}:{} {} "
                                          "--gtest_filter={}",
                                          library, DRIVERLESS_LIBRARIES, library.substr(0, library.rfind('/')),
                                          std::filesystem::read_symlink("/proc/self/exe").string(), test);
  EXPECT_EQ(std::system(command.c_str()), 0);
  return true;
}

} // namespace cleave::runtime::test
