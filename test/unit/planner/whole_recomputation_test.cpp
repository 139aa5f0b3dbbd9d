// The seconds that saving memory takes: whole units against every way for each of them, and parts of savings against
// every order.
#include "compiler/planner/certify/sorted_savings.h"
#include "compiler/planner/facts/whole_recomputation.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cleave::planner {
namespace {

TEST(WholeRecomputation, TakesWhatTheBestOfAllWaysTakes) {
  std::mt19937 random(1);
  auto number = [&](double most) { return most * double(random() % 1000) / 1000; };
  int possible = 0, inParts = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<AgainWay> ways(1 + random() % 3);
    for (AgainWay &way : ways) way = {number(2), number(4), number(1)};
    std::vector<double> slots(1 + random() % 5);
    for (double &one : slots) one = double(1 + random() % 4);
    std::vector<AgainChoice> all; // of every way, or none, for each unit
    std::function<void(size_t, AgainChoice)> choose = [&](size_t unit, AgainChoice choice) {
      if (unit == slots.size()) return all.push_back(choice);
      choose(unit + 1, choice);
      for (const AgainWay &way : ways)
        choose(unit + 1, {choice.seconds + way.seconds, choice.saved + slots[unit] * way.saved - way.savedOfLast});
    };
    choose(0, {});
    const std::vector<AgainChoice> choices = wholeRecomputation(ways, slots);
    auto least = [](const std::vector<AgainChoice> &of, double bytes) {
      double seconds = infinity;
      for (const AgainChoice &one : of)
        if (one.saved >= bytes * (1 - 1e-12)) seconds = std::min(seconds, one.seconds);
      return seconds;
    };
    for (const AgainChoice &one : all) {
      const double expected = least(all, one.saved), found = least(choices, one.saved);
      EXPECT_NEAR(found, expected, 1e-9 * (1 + expected)) << round;
      possible += expected > 0;
      inParts += expected > least(all, 0.9 * one.saved) && one.saved > 0;
    }
  }
  EXPECT_GE(possible, 1000);
  EXPECT_GE(inParts, 100); // a whole unit more
}

TEST(WholeRecomputation, PartsOfSavingsTakeWhatTheBestOrderTakes) {
  std::mt19937 random(2);
  auto number = [&] { return double(1 + random() % 1000) / 100; };
  int left = 0, parts = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<SortedSavings::Saving> savings(random() % 5);
    double all = 0;
    for (SortedSavings::Saving &one : savings) {
      one = {number() - 2, number()};
      all += one.bytes;
    }
    const double bytes = (round % 3 == 0 ? 1.5 : 0.7) * all + (round % 7 == 0 ? 1 : 0);
    std::vector<size_t> order(savings.size());
    std::iota(order.begin(), order.end(), 0);
    double least = infinity;
    do {
      double seconds = 0, rest = bytes;
      for (size_t i : order) {
        const double part = std::min(rest, savings[i].bytes);
        seconds += part * savings[i].price;
        rest -= part;
      }
      least = std::min(least, seconds);
    } while (std::ranges::next_permutation(order).found);
    const SortedSavings::Spent spent = SortedSavings(savings).spend(bytes);
    EXPECT_NEAR(spent.seconds, least, 1e-9 * (1 + std::abs(least))) << round;
    EXPECT_NEAR(spent.left, std::max(0.0, bytes - all), 1e-9 * (1 + all)) << round;
    left += spent.left > 0;
    parts += spent.left == 0 && bytes > 0;
    EXPECT_EQ(SortedSavings(savings).spend(-1).seconds, 0);
  }
  EXPECT_GE(left, 20);
  EXPECT_GE(parts, 60);
}

} // namespace
} // namespace cleave::planner
