#include "runtime/train/data/dataset.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/token_file.h"
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Number> std::string rawBytes(const std::vector<Number> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Number)};
}

class FilesTest : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("cleave-files-test-" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string write(const std::string &name, const std::string &bytes) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream((folder / name), std::ios::binary) << bytes;
    return (folder / name).string();
  }
  std::string at(const std::string &name) { return (folder / name).string(); }
  std::vector<std::string> names(const std::vector<std::string> &paths, const FileChoice &choice) {
    std::vector<std::string> given;
    for (const std::string &path : paths) given.push_back(at(path));
    Result<std::vector<std::string>> files = filesOf(given, choice);
    EXPECT_TRUE(files.isOk()) << files.status().message();
    std::vector<std::string> result;
    for (const std::string &file : *files) result.push_back(fs::path(file).lexically_relative(folder).string());
    return result;
  }
  static std::vector<int64_t> taken(const Dataset &data, size_t field, const std::vector<int64_t> &indices) {
    std::vector<int64_t> out(indices.size() * static_cast<size_t>(data.fields()[field].elements()));
    const Status status = data.fill(field, indices, reinterpret_cast<std::byte *>(out.data()));
    EXPECT_TRUE(status.isOk()) << status.message();
    return out;
  }
  DataSource opened(const std::string &yaml) {
    Result<DataSource> source = openData(yaml, fields);
    EXPECT_TRUE(source.isOk()) << source.status().message();
    return source ? std::move(*source) : DataSource();
  }
  std::string fault(const std::string &yaml) {
    Result<DataSource> source = openData(yaml, fields);
    EXPECT_FALSE(source.isOk());
    return source.status().message();
  }
  fs::path folder;
  std::vector<Field> fields = {{"ids", plan::I64, {3}}, {"labels", plan::I64, {3}, true}};
};

TEST_F(FilesTest, AreListedInOrder) {
  for (const char *name : {"s/b.bin", "s/a.bin", "s/10.bin", "s/9.bin", "s/readme.md", "s/deep/c.bin", "x[1].bin"})
    write(name, "");
  EXPECT_THAT(names({"s"}, {{".bin"}}), ElementsAre("s/10.bin", "s/9.bin", "s/a.bin", "s/b.bin"));
  EXPECT_THAT(names({"s/b.bin", "s/*[a0].bin", "none.bin"}, {{".bin"}}),
              ElementsAre("s/b.bin", "s/10.bin", "s/a.bin", "none.bin"));
  EXPECT_THAT(names({"x[1].bin"}, {{".bin"}}), ElementsAre("x[1].bin")); // a file of that name is no glob
  EXPECT_THAT(names({"s"}, {{".npz"}, true}), ElementsAre("s"));
  EXPECT_THAT(filesOf({at("s")}, {{".npz", ".npy"}}).status().message(),
              HasSubstr("s: the folder holds no .npz or .npy"));
  EXPECT_THAT(filesOf({at("s/*.txt")}, {{".txt"}}).status().message(), HasSubstr("s/*.txt: no file matches"));
  write("s/a.bin", "12345");
  EXPECT_EQ(**fileBytes({at("s"), at("s/*.bin"), at("s/a.bin")}), 15u);
  EXPECT_FALSE(fileBytes({at("s"), at("none")})->has_value());
}

// Samples are those of each file: none begins in one file and ends in the next.
TEST_F(FilesTest, TokensOfSeveralFiles) {
  write("a.bin", rawBytes<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7}));     // 2 samples
  write("b.bin", rawBytes<uint16_t>({20, 21, 22}));                 // too few
  write("c.bin", rawBytes<uint16_t>({30, 31, 32, 33, 34, 35, 36})); // 2
  DataSource source = opened("{kind: tokens, path: " + at("*.bin") + "}");
  EXPECT_EQ(source.train->size(), 4);
  EXPECT_THAT(taken(*source.train, 0, {2, 1, 3}), ElementsAre(30, 31, 32, 3, 4, 5, 33, 34, 35));
  EXPECT_THAT(taken(*source.train, 1, {2, 1, 3}), ElementsAre(31, 32, 33, 4, 5, 6, 34, 35, 36));
  // Two thirds of 18 tokens are those of a.bin, of b.bin, and one of c.bin.
  source = opened("{kind: tokens, train_split: 0.667, path: [" + at("a.bin") + ", " + at("b.bin") + ", " + at("c.bin") +
                  "]}");
  EXPECT_EQ(source.train->size(), 2);
  EXPECT_EQ(source.evaluation->size(), 1);
  EXPECT_THAT(taken(*source.evaluation, 0, {0}), ElementsAre(31, 32, 33));
  source = opened("{kind: tokens, truncate: 15, path: " + folder.string() + "}");
  EXPECT_EQ(source.train->size(), 3);
  fields[0].upperBound = 34;
  std::vector<std::byte> bytes(24);
  EXPECT_THAT(opened("{kind: tokens, path: " + folder.string() + "}")
                  .train->fill(0, std::array<int64_t, 1>{3}, bytes.data())
                  .message(),
              HasSubstr("c.bin: token 34 at position 4 is outside of the model's 34 (ids)"));
  EXPECT_THAT(fault("{kind: tokens, path: [" + at("a.bin") + ", " + at("none.bin") + "]}"), HasSubstr("none.bin"));
  EXPECT_THAT(fault("{kind: tokens, path: [" + at("b.bin") + "]}"), HasSubstr("b.bin: 3 symbols are too few"));
}

TEST_F(FilesTest, CharsOfSeveralFilesHaveOneVocabulary) {
  write("a.txt", "hello"), write("b.txt", "ab"), write("c.txt", "world");
  DataSource source = opened("{kind: chars, path: " + folder.string() + "}");
  EXPECT_EQ(source.vocabulary, "abdehlorw");
  EXPECT_EQ(source.train->size(), 2 + 2);
  EXPECT_THAT(taken(*source.train, 0, {1, 2}), ElementsAre(3, 5, 5, 8, 6, 7));
  EXPECT_THAT(taken(*source.train, 1, {1, 2}), ElementsAre(5, 5, 6, 6, 7, 5));
  write("b.txt", "a\xff");
  EXPECT_THAT(fault("{kind: chars, path: " + folder.string() + "}"), HasSubstr("b.txt: byte 1 is not UTF-8"));
}

std::string llmc(std::vector<int32_t> header, const std::string &tokens) {
  header.resize(256);
  return rawBytes(header) + tokens;
}

TEST_F(FilesTest, TokenFilesOfLlmC) {
  const std::string path = write("x.bin", llmc({20240520, 1, 4}, rawBytes<uint16_t>({5, 6, 7, 65535})));
  DataSource source = opened("{kind: tokens, path: " + path + "}");
  EXPECT_THAT(taken(*source.train, 1, {0}), ElementsAre(6, 7, 65535));
  EXPECT_THAT(fault("{kind: tokens, dtype: uint32, path: " + path + "}"),
              HasSubstr("x.bin: its tokens are u16, as the file itself says, and data.dtype is uint32"));
  write("x.bin", llmc({20240801, 7, 4}, rawBytes<uint32_t>({5, 6, 7, 128000})));
  EXPECT_THAT(taken(*opened("{kind: tokens, path: " + path + "}").train, 1, {0}), ElementsAre(6, 7, 128000));
  write("x.bin", llmc({20240520, 2, 4}, rawBytes<uint16_t>({5, 6, 7, 8})));
  EXPECT_THAT(fault("{kind: tokens, path: " + path + "}"), HasSubstr("x.bin: is a token file of llm.c in version 2"));
  for (int32_t tokens : {3, 5, -1}) {
    write("x.bin", llmc({20240520, 1, tokens}, rawBytes<uint16_t>({5, 6, 7, 8})));
    EXPECT_THAT(fault("{kind: tokens, path: " + path + "}"),
                HasSubstr(fmt::format("says {} tokens of 2 bytes, and 8", tokens)));
  }
}

// Of documents [5, 6, 7] [8] [9, 10, 11, 12], the last in two sequences.
std::string index(uint8_t code = 8) {
  const int64_t unit = code == 8 ? 2 : 4;
  const uint64_t version = 1, sequences = 4, documents = 4;
  return std::string("MMIDIDX\0\0", 9) + rawBytes<uint64_t>({version}) + std::string(1, static_cast<char>(code)) +
         rawBytes<uint64_t>({sequences, documents}) + rawBytes<int32_t>({3, 1, 1, 3}) +
         rawBytes<int64_t>({0, 3 * unit, 4 * unit, 5 * unit}) + rawBytes<int64_t>({0, 1, 2, 4});
}

TEST_F(FilesTest, TokenFilesOfMegatron) {
  const std::vector<uint16_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
  const std::string path = write("x.bin", rawBytes(tokens)), idx = write("x.idx", index());
  const std::string yaml = "{kind: tokens, path: " + path + "}";
  EXPECT_THAT(taken(*opened(yaml).train, 1, {1}), ElementsAre(9, 10, 11)); // blocks run over the documents
  EXPECT_THAT(taken(*opened("{kind: tokens, path: " + at("x") + "}").train, 1, {1}), ElementsAre(9, 10, 11));
  Result<TokenFile> file = openTokenFile(path, "", true);
  ASSERT_TRUE(file.isOk()) << file.status().message();
  EXPECT_THAT(*file->documents, ElementsAre(0, 3, 4, 8));
  EXPECT_THAT(fault("{kind: tokens, dtype: int32, path: " + path + "}"), HasSubstr("its tokens are u16"));
  write("x.bin", rawBytes(std::vector<int32_t>(tokens.begin(), tokens.end()))), write("x.idx", index(4));
  EXPECT_THAT(taken(*opened(yaml).train, 1, {1}), ElementsAre(9, 10, 11));
  write("x.idx", index(7));
  EXPECT_THAT(fault(yaml), HasSubstr("x.idx: its numbers are of type 7, which tokens are not"));
  write("x.bin", rawBytes(tokens) + "1");
  write("x.idx", index());
  EXPECT_THAT(fault(yaml), HasSubstr("x.bin: has 17 bytes, and"));
  write("x.bin", rawBytes(tokens));
  write("x.idx", "TNTIDX\0\0" + index());
  EXPECT_THAT(fault(yaml), HasSubstr("x.idx: is not the index of Megatron-LM's MMapIndexedDataset"));
  const std::string good = index();
  for (size_t length = 0; length < good.size(); ++length) {
    write("x.idx", good.substr(0, length));
    EXPECT_FALSE(openTokenFile(path, "", true).isOk()) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) // no byte that is wrong may crash
    for (char change : {'\x01', '\x80', '\xff'}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      write("x.idx", damaged);
      (void)openTokenFile(path, "", true).isOk();
    }
}

} // namespace
} // namespace cleave::runtime
