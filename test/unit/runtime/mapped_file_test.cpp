// Files that become shorter while they are mapped, and SIGBUS of others.
#include "runtime/base/mapped_file.h"
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

using testing::HasSubstr;

constexpr size_t size = 1 << 20;

class Mapped : public testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); // handlers of signals are the process's
    std::ofstream(path) << std::string(size, 'x');
  }
  void TearDown() override { std::filesystem::remove(path); }
  std::shared_ptr<MappedFile> open() { return *MappedFile::open(path); }
  void shrink() { std::filesystem::resize_file(path, 10); }
  // One that the runtime does not know of.
  const volatile char *mapElsewhere() {
    const int file = ::open(path.c_str(), O_RDONLY);
    void *mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    return static_cast<const volatile char *>(mapped);
  }
  const std::string path = testing::TempDir() + "cleave-mapped-" + std::to_string(::getpid());
};

TEST_F(Mapped, WhatIsLostIsReadAsZerosAndSaid) {
  std::shared_ptr<MappedFile> file = open();
  EXPECT_TRUE(MappedFile::intact());
  shrink();
  EXPECT_TRUE(MappedFile::intact()); // nobody has looked
  EXPECT_EQ(file->bytes()[5], 'x');
  EXPECT_EQ(file->bytes()[size / 2], 0);
  EXPECT_EQ(file->bytes()[size - 1], 0);
  const std::string lost = path + ": has become shorter, or unreadable, while it was read";
  EXPECT_EQ(MappedFile::intact().message(), lost);
  EXPECT_EQ(MappedFile::intact().exitStatus(), 4);
  file.reset();
  EXPECT_EQ(MappedFile::intact().message(), lost);
  EXPECT_TRUE(MappedFile::intact());
}

TEST_F(Mapped, AProgramMayEndThen) {
  auto end = [](const char *path) {
    (void)!::write(STDERR_FILENO, path, std::strlen(path));
    ::_exit(4);
  };
  EXPECT_EXIT(
      {
        std::shared_ptr<MappedFile> file = open();
        MappedFile::onLoss(end);
        shrink();
        volatile char byte = file->bytes()[size - 1];
        (void)byte;
      },
      testing::ExitedWithCode(4), "cleave-mapped-");
}

TEST_F(Mapped, OtherSignalsGoToTheHandlerThatWasThere) {
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(7); });
        std::shared_ptr<MappedFile> file = open();
        const volatile char *elsewhere = mapElsewhere();
        shrink();
        (void)elsewhere[size - 1];
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        std::shared_ptr<MappedFile> file = open();
        const volatile char *elsewhere = mapElsewhere();
        shrink();
        (void)elsewhere[size - 1];
      },
      testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        std::shared_ptr<MappedFile> file = open();
        ::kill(::getpid(), SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

} // namespace
} // namespace cleave::runtime
