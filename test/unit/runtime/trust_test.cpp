#include "runtime/base/digest.h"
#include "runtime/base/printable.h"
#include "runtime/engine/executor/dry_run.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/trust.h"
#include "test/unit/runtime/mlp_plan.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::runtime::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TrustTest : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / ("cleave_trust_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    const char *before = std::getenv("CLEAVE_STATE_DIR");
    stateBefore = before ? before : "";
    ::setenv("CLEAVE_STATE_DIR", (folder / "state").c_str(), 1);
    source = mlpPlan({});
    source.set_model_path("/models/mlp.onnx");
    source.mutable_training()->set_data_yaml("{kind: tokens, path: /data/secret.bin}");
    encoded = *encodePlan(source);
  }
  void TearDown() override {
    if (stateBefore.empty())
      ::unsetenv("CLEAVE_STATE_DIR");
    else
      ::setenv("CLEAVE_STATE_DIR", stateBefore.c_str(), 1);
    fs::remove_all(folder);
  }
  std::string path(const char *name) const { return (folder / name).string(); }
  std::string write(const std::string &bytes) const {
    std::ofstream(path("x.plan"), std::ios::binary) << bytes;
    return path("x.plan");
  }
  std::string refusal(const std::string &bytes, const Trust &trust = {}) const {
    Result<plan::Plan> plan = readTrustedPlan(write(bytes), trust);
    EXPECT_TRUE(plan || plan.status().exitStatus() == 1);
    return plan.status().message();
  }
  SecretKey key(const char *name) const {
    EXPECT_TRUE(makeKeys(path(name)));
    return *readSecretKey(path(name));
  }

  fs::path folder;
  std::string stateBefore, encoded;
  plan::Plan source;
};

TEST_F(TrustTest, AStrangersPlanIsNamedAndRefused) {
  EXPECT_THAT(refusal(encoded), AllOf(HasSubstr("a plan is a program"), HasSubstr("native code for x86-64"),
                                      HasSubstr("weights from /models/mlp.onnx"), HasSubstr("/data/secret.bin"),
                                      HasSubstr("--trust-code"), HasSubstr("Nobody has signed it")));
  ASSERT_TRUE(trustPlan(encoded));
  EXPECT_EQ(refusal(encoded), "");
  source.set_model_path("/etc/shadow"); // one changed field is another plan
  EXPECT_THAT(refusal(*encodePlan(source)), HasSubstr("weights from /etc/shadow"));
  source.mutable_training()->set_data_yaml(
      "sources:\n  - kind: tokens\n    path: \"/a, b\"\n  - path: [\"/c\", \"/d\"]\n");
  EXPECT_THAT(refusal(*encodePlan(source)), HasSubstr("data from \"/a, b\" and [\"/c\", \"/d\"]."));
}

TEST_F(TrustTest, IsAskedForOnce) {
  const std::string digest = hexOf(identityOf(encoded).digest);
  EXPECT_THAT(refusal(encoded, {.code = true, .digest = "0123456789abcdef"}), HasSubstr("its digest is " + digest));
  EXPECT_THAT(refusal(encoded, {.code = true, .digest = digest.substr(0, 4)}), HasSubstr("16 digits"));
  EXPECT_NE(refusal(encoded), "");
  EXPECT_EQ(refusal(encoded, {.code = true, .digest = digest.substr(0, 20)}), "");
  EXPECT_EQ(refusal(encoded), "");
  struct stat known{};
  ASSERT_EQ(::stat((folder / "state" / "trusted" / digest).c_str(), &known), 0);
  EXPECT_EQ(known.st_mode & 0777, 0600U);
}

TEST_F(TrustTest, AListThatOthersMayWriteToCountsForNothing) {
  ASSERT_TRUE(trustPlan(encoded));
  ASSERT_EQ(::chmod((folder / "state" / "trusted").c_str(), 0777), 0);
  EXPECT_NE(refusal(encoded), "");
  EXPECT_THAT(trustPlan(encoded).message(), HasSubstr("only you may write to"));
  std::vector<std::string> notes; // a run goes on
  EXPECT_EQ(refusal(encoded, {.code = true, .note = [&](const std::string &text) { notes.push_back(text); }}), "");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], HasSubstr("this time only"));
}

TEST_F(TrustTest, SignaturesSayWho) {
  SecretKey mine = key("mine"), other = key("other");
  std::string signedPlan = encoded, otherPlan = encoded;
  signPlan(signedPlan, mine);
  signPlan(otherPlan, other);
  EXPECT_EQ(refusal(signedPlan, {.keys = path("mine.pub")}), "");
  EXPECT_THAT(refusal(otherPlan, {.keys = path("mine.pub")}), HasSubstr("is not in"));
  EXPECT_THAT(refusal(encoded, {.keys = path("mine.pub")}), HasSubstr("is not signed"));
  EXPECT_THAT(refusal(signedPlan), HasSubstr("has signed it"));
  EXPECT_THAT(refusal(signedPlan, {.keys = path("mine")}), HasSubstr("is a secret key"));
  EXPECT_THAT(refusal(signedPlan, {.keys = path("none")}), HasSubstr("cannot be opened"));
  std::ofstream(path("both"), std::ios::app) << std::ifstream(path("mine.pub")).rdbuf() << "# a friend's\n"
                                             << std::ifstream(path("other.pub")).rdbuf();
  EXPECT_EQ(refusal(otherPlan, {.keys = path("both")}), "");
  // Read, reported and checked as any other.
  Result<plan::Plan> read = decodePlan(signedPlan, "x");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->SerializeAsString(), source.SerializeAsString());
}

TEST_F(TrustTest, AChangedPlanLosesItsSignature) {
  std::string signedPlan = encoded;
  signPlan(signedPlan, key("mine"));
  source.set_model_path("/etc/shadow");
  std::string forged = *encodePlan(source);
  SecretKey throwaway = key("throwaway");
  signPlan(forged, throwaway); // the right form, with the old signature in it
  forged.replace(forged.size() - 96, 96, signedPlan.substr(signedPlan.size() - 96));
  EXPECT_THAT(refusal(forged, {.keys = path("mine.pub")}), HasSubstr("changed after it was signed"));
  EXPECT_THAT(refusal(forged, {.code = true}), HasSubstr("changed after it was signed"));
  for (size_t bytes : {size_t(0), size_t(60), signedPlan.size() - 96, signedPlan.size() - 1})
    EXPECT_FALSE(decodePlan(std::string_view(signedPlan).substr(0, bytes), "x")) << bytes;
}

TEST_F(TrustTest, KeysAreKeptSecret) {
  key("mine");
  struct stat known{};
  ASSERT_EQ(::stat(path("mine").c_str(), &known), 0);
  EXPECT_EQ(known.st_mode & 0777, 0600U);
  EXPECT_THAT(makeKeys(path("mine")).message(), HasSubstr("File exists"));
  ASSERT_EQ(::chmod(path("mine").c_str(), 0644), 0);
  EXPECT_THAT(readSecretKey(path("mine")).status().message(), HasSubstr("chmod 600"));
  EXPECT_THAT(readSecretKey(path("mine.pub")).status().message(), HasSubstr("others may read"));
  ASSERT_EQ(::chmod(path("mine.pub").c_str(), 0600), 0);
  EXPECT_THAT(readSecretKey(path("mine.pub")).status().message(), HasSubstr("is no secret key"));
}

// A plan that is only looked at runs nothing: bytes that are no code at all pass.
TEST_F(TrustTest, ARehearsalLoadsNoCode) {
  source.set_kernel_object("not an ELF file");
  source.set_code_digest(codeDigest(source));
  Status ran = dryRun(source);
  EXPECT_TRUE(ran) << ran.message();
  source.set_kernel_object("changed");
  EXPECT_THAT(dryRun(source).message(), HasSubstr("does not belong to their code"));
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("h.0/attn\n\tq µ 層"), "h.0/attn\n\tq µ 層");
  EXPECT_EQ(printable("a\x1b[2Jb\rc\x7f"), "a\\u001b[2Jb\\u000dc\\u007f");
  EXPECT_EQ(printable("\u009b31m \u202egpj.exe \u2066"), "\\u009b31m \\u202egpj.exe \\u2066");
  EXPECT_EQ(printable("\xff\xc0\x80 \xe2\x82"), "\\xff\\xc0\\x80 \\xe2\\x82");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(printable(""), "");
}

} // namespace
} // namespace cleave::runtime::test
