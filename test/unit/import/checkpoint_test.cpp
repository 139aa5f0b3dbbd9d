// Checkpoints of onnxruntime-training that its own tools write for large models or while training: what the recorded
// ones of test/golden/artifacts are not. Their layout was read off files that onnxruntime-training 1.19.2 wrote.
#include "compiler/import/checkpoint.h"
#include "gmock/gmock.h"
#include <filesystem>
#include <flatbuffers/flatbuffers.h>
#include <fstream>
#include <unistd.h>

namespace cleave::import_ {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::uoffset_t;
using testing::HasSubstr;
constexpr flatbuffers::voffset_t field(int number) { return static_cast<flatbuffers::voffset_t>(4 + 2 * number); }

struct Options {
  int version = 2;
  bool nominal = false, grouped = false;
  int64_t lost = 0; // bytes of the parameter inside the checkpoint
};

// A [2, 3] parameter inside, a [4] one at byte 64 of the file beside it.
std::string checkpointWith(const Options &options) {
  FlatBufferBuilder builder;
  auto tensor = [&](const char *name, std::vector<int64_t> dims, int64_t bytes, int64_t external) {
    Offset<flatbuffers::String> label = builder.CreateString(name);
    auto sizes = builder.CreateVector(dims);
    auto raw = builder.CreateVector(std::vector<uint8_t>(static_cast<size_t>(bytes), 7));
    uoffset_t start = builder.StartTable();
    if (external >= 0) builder.AddElement<int64_t>(field(6), external, -1);
    if (bytes > 0) builder.AddOffset(field(4), raw);
    builder.AddElement<int32_t>(field(3), 1, 0);
    builder.AddOffset(field(2), sizes);
    builder.AddOffset(field(0), label);
    return Offset<void>(builder.EndTable(start));
  };
  auto trained = builder.CreateVector(std::vector<Offset<void>>{tensor("w", {2, 3}, 24 - options.lost, -1)});
  auto frozen = builder.CreateVector(std::vector<Offset<void>>{tensor("large", {4}, 0, 64)});
  uoffset_t start = builder.StartTable();
  builder.AddOffset(field(0), trained);
  builder.AddOffset(field(1), frozen);
  builder.AddElement<uint8_t>(field(2), options.nominal, 0);
  builder.AddElement<uint8_t>(field(3), 1, 0);
  Offset<void> module(builder.EndTable(start));
  start = builder.StartTable();
  builder.AddElement<int64_t>(field(1), 12, 0);
  builder.AddElement<float>(field(2), 0.25F, 0);
  Offset<void> group(builder.EndTable(start));
  auto groups = builder.CreateVector(std::vector<Offset<void>>{group});
  start = builder.StartTable();
  builder.AddElement<int32_t>(field(0), options.version, 0);
  builder.AddOffset(field(1), module);
  if (options.grouped) builder.AddOffset(field(2), groups);
  builder.Finish(Offset<void>(builder.EndTable(start)), "ODTC");
  return {reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize()};
}

Result<Checkpoint> read(const Options &options, std::string *content = nullptr) {
  auto path = std::filesystem::temp_directory_path() / ("cleave-checkpoint-" + std::to_string(getpid()));
  std::string bytes = checkpointWith(options);
  std::ofstream(path, std::ios::binary) << bytes;
  if (content) *content = bytes;
  Result<Checkpoint> checkpoint = readCheckpoint(path.string());
  std::filesystem::remove(path);
  return checkpoint;
}

TEST(Checkpoint, SaysWhereTheBytesAre) {
  std::string content;
  Result<Checkpoint> checkpoint = read({}, &content);
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  const CheckpointTensor &inside = checkpoint->trained.at(0), &beside = checkpoint->frozen.at(0);
  EXPECT_EQ(inside.name, "w");
  EXPECT_THAT(inside.shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(content.substr(static_cast<size_t>(inside.offset), static_cast<size_t>(inside.length)), std::string(24, 7));
  EXPECT_TRUE(beside.file == inside.file + ".data" && beside.offset == 64 && beside.length == 16);
  EXPECT_FALSE(checkpoint->learningRate);
}

TEST(Checkpoint, OfATrainingHasItsRateAndSteps) {
  Result<Checkpoint> checkpoint = read({.grouped = true});
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->learningRate, 0.25F);
  EXPECT_EQ(checkpoint->steps, 12);
}

TEST(Checkpoint, FaultsAreNamed) {
  EXPECT_THAT(read({.version = 9}).status().message(), HasSubstr("has version 9; versions 1 to 2"));
  EXPECT_THAT(read({.nominal = true}).status().message(), HasSubstr("is nominal"));
  EXPECT_THAT(read({.lost = 4}).status().message(), HasSubstr("parameter 'w': 20 bytes are stored"));
}

} // namespace
} // namespace cleave::import_
