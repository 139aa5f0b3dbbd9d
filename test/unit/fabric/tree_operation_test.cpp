// Operations of many ranks in one thread, over mailboxes in memory.
#include "runtime/engine/comm/tree_operation.h"
#include <cstring>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numeric>

namespace cleave::runtime::test {
namespace {

// What has been sent and not received, by sender, receiver and tag.
using Mail = std::map<std::tuple<int, int, uint32_t>, std::deque<std::string>>;

class MailEndpoint final : public Endpoint {
public:
  MailEndpoint(int rank, int count, Mail &mail) : self(rank), count(count), mail(mail) {}
  int rank() const override { return self; }
  int size() const override { return count; }
  void isend(Message &message) override {
    mail[{self, message.peer, message.tag}].emplace_back(reinterpret_cast<char *>(message.data),
                                                         static_cast<size_t>(message.bytes));
    message.isDone = true;
  }
  void irecv(Message &message) override { wanted.push_back(&message); }
  bool progress() override {
    return std::erase_if(wanted, [this](Message *message) {
             auto found = mail.find({message->peer, self, message->tag});
             if (found == mail.end()) return false;
             const std::string text = std::move(found->second.front());
             found->second.pop_front();
             if (found->second.empty()) mail.erase(found);
             std::memcpy(message->data, text.data(), text.size());
             message->arrived = std::ssize(text), message->isDone = true;
             return true;
           }) > 0;
  }
  void wait(int64_t) override {}
  void cancel(Message &message) override { std::erase(wanted, &message); }

private:
  const int self, count;
  Mail &mail;
  std::vector<Message *> wanted;
};

std::string sum(const std::vector<std::string> &all) {
  int64_t total = 0;
  for (const std::string &one : all) total += std::stoll(one);
  return std::to_string(total);
}

struct Ranks {
  Mail mail;
  std::deque<MailEndpoint> endpoints;
  std::deque<TreeOperation> operations;
  explicit Ranks(int count, size_t padding = 0) {
    for (int rank = 0; rank < count; ++rank)
      operations.emplace_back(endpoints.emplace_back(rank, count, mail),
                              std::string(padding, '0') + std::to_string(rank),
                              [padding](const auto &all) { return std::string(padding, '0') + sum(all); });
  }
  // Rounds in which every rank goes on once, until all are over; `most`, which they are not.
  int finish(int most) {
    for (int round = 0; round < most; ++round) {
      bool all = true;
      for (size_t r = 0; r < operations.size(); ++r) endpoints[r].progress(), all &= operations[r].advance();
      if (all) return round;
    }
    return most;
  }
};

TEST(TreeOperation, AllOf16384RanksHaveTheResultIn14Levels) {
  constexpr int count = 16384;
  EXPECT_LE(heightOf(0, count), 14);
  for (size_t padding : {size_t(0), size_t(60)}) { // within a head, and with a body
    Ranks ranks(count, padding);
    EXPECT_LT(ranks.finish(100), 100);
    for (TreeOperation &operation : ranks.operations) {
      ASSERT_TRUE(operation.failure()) << operation.failure().message();
      ASSERT_EQ(std::stoll(operation.result()), int64_t(count) * (count - 1) / 2);
    }
    EXPECT_TRUE(ranks.mail.empty());
  }
}

TEST(TreeOperation, TheTreeHasEachRankOnceAndNeighboursAgree) {
  for (int count : {1, 2, 3, 6, 7, 8, 1000}) {
    std::vector<int> parents(static_cast<size_t>(count), -1);
    for (int rank = 0; rank < count; ++rank) {
      for (int child : childrenOf(rank, count)) {
        EXPECT_EQ(parentOf(child), rank);
        EXPECT_EQ(std::exchange(parents[static_cast<size_t>(child)], rank), -1);
        EXPECT_THAT(neighboursOf(child, count), testing::Contains(rank));
        EXPECT_LT(heightOf(child, count), heightOf(rank, count));
      }
    }
    EXPECT_EQ(std::ranges::count(parents, -1), 1); // the root
  }
}

// Each rank in turn says nothing, and the others give up on it as their deadlines say: those above, then those below.
TEST(TreeOperation, EveryRanksFailureReachesAllOthers) {
  constexpr int count = 100;
  for (int lost = 0; lost < count; ++lost) {
    Ranks ranks(count);
    auto advance = [&] {
      for (int turn = 0; turn < 40; ++turn)
        for (int r = 0; r < count; ++r)
          if (r != lost)
            ranks.endpoints[static_cast<size_t>(r)].progress(), ranks.operations[static_cast<size_t>(r)].advance();
    };
    advance();
    for (int r : neighboursOf(lost, count)) {
      TreeOperation &operation = ranks.operations[static_cast<size_t>(r)];
      EXPECT_THAT(operation.awaited(), testing::Contains(lost)) << "rank " << r;
      operation.giveUp("rank " + std::to_string(lost) + " is silent");
      advance();
    }
    for (int r = 0; r < count; ++r) {
      if (r == lost) continue;
      TreeOperation &operation = ranks.operations[static_cast<size_t>(r)];
      EXPECT_TRUE(operation.advance()) << "rank " << r << " without rank " << lost;
      EXPECT_THAT(operation.failure().message(), testing::HasSubstr("rank " + std::to_string(lost) + " is silent"))
          << "rank " << r;
    }
  }
}

} // namespace
} // namespace cleave::runtime::test
