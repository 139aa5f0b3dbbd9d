// The network's settings from variables and options.
#include "runtime/engine/comm/network.h"
#include <cstdio>
#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

Result<Network> read(const std::map<std::string, std::string> &variables, const NetworkOptions &options = {}) {
  return readNetwork(options, [&](const char *name) {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct SecretFile {
  std::string path = testing::TempDir() + "secret-" + std::to_string(::getpid());
  explicit SecretFile(const std::string &text) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
  }
  ~SecretFile() { std::remove(path.c_str()); }
};

TEST(Network, NothingSaidIsNoSecret) {
  Result<Network> network = read({});
  ASSERT_TRUE(network);
  EXPECT_FALSE(network->secret);
  EXPECT_FALSE(network->isInsecure);
  EXPECT_TRUE(network->interface.empty());
}

TEST(Network, ASecretIsTheSameFromVariableAndFile) {
  SecretFile file("0123456789abcdef0123\n");
  Result<Network> variable = read({{"CLEAVE_SECRET", "0123456789abcdef0123"}}),
                  named = read({{"CLEAVE_SECRET_FILE", file.path}}),
                  option = read({{"CLEAVE_SECRET", "what the option replaces"}}, {.secretFile = file.path});
  ASSERT_TRUE(variable && named && option);
  EXPECT_EQ(variable->secret, named->secret);
  EXPECT_EQ(variable->secret, option->secret);
  EXPECT_NE(variable->secret, read({{"CLEAVE_SECRET", "0123456789abcdef0124"}})->secret);
}

TEST(Network, BadSecretsAreSaid) {
  SecretFile empty("\n");
  EXPECT_THAT(read({{"CLEAVE_SECRET", "short"}}).status().message(), testing::HasSubstr("5 characters"));
  EXPECT_THAT(read({{"CLEAVE_SECRET_FILE", empty.path}}).status().message(), testing::HasSubstr("0 characters"));
  EXPECT_THAT(read({{"CLEAVE_SECRET_FILE", "/no/such/file"}}).status().message(), testing::HasSubstr("cannot be read"));
  EXPECT_THAT(read({{"CLEAVE_SECRET_FILE", "/proc/self/fd"}}).status().message(), testing::HasSubstr("cannot be read"));
  EXPECT_THAT(read({{"CLEAVE_SECRET", std::string(20, 'x')}, {"CLEAVE_SECRET_FILE", empty.path}}).status().message(),
              testing::HasSubstr("both set"));
  EXPECT_EQ(read({{"CLEAVE_SECRET", "short"}}).status().exitStatus(), 1);
}

TEST(Network, ASecretThatOthersCanReadIsNone) {
  SecretFile file("0123456789abcdef0123");
  for (mode_t mode : {0640, 0604, 0620}) {
    ::chmod(file.path.c_str(), mode);
    EXPECT_THAT(read({{"CLEAVE_SECRET_FILE", file.path}}).status().message(),
                testing::HasSubstr("others may read this secret: chmod 600 " + file.path));
  }
  ::chmod(file.path.c_str(), 0400);
  EXPECT_TRUE(read({{"CLEAVE_SECRET_FILE", file.path}}));
}

TEST(Network, ExposureIsAnAddressBeyondThisHostWithoutASecret) {
  Network open{.isInsecure = true}, closed{.secret = RunSecret{}};
  EXPECT_THAT(exposure(open, {"127.0.0.1", "192.0.2.1"}), testing::HasSubstr("at 192.0.2.1 without a secret"));
  EXPECT_THAT(exposure(open, {"2001:db8::1", "::1"}), testing::HasSubstr("2001:db8::1"));
  EXPECT_EQ(exposure(open, {"127.0.0.1", "::1", "127.0.1.1"}), "");
  EXPECT_EQ(exposure(closed, {"192.0.2.1"}), "");
  EXPECT_EQ(exposure(open, {}), ""); // MPI tells none
}

TEST(Network, InsecureIsSaidByOne) {
  EXPECT_TRUE(read({{"CLEAVE_INSECURE_NETWORK", "1"}})->isInsecure);
  EXPECT_FALSE(read({{"CLEAVE_INSECURE_NETWORK", "0"}})->isInsecure);
  EXPECT_TRUE(read({}, {.isInsecure = true})->isInsecure);
}

} // namespace
} // namespace cleave::runtime
