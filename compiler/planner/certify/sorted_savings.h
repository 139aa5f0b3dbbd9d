// The least time that saving bytes takes, where each of several savings may be made in part: the cheapest first.
//
//   SortedSavings({{2, 10}, {1, 5}}).spend(8).seconds == 11      5 bytes at 1 s each, 3 at 2 s
#pragma once
#include <vector>

namespace cleave::planner {

class SortedSavings {
public:
  struct Saving {
    double price = 0, bytes = 0; // seconds for each byte; so many bytes
  };
  struct Spent {
    double seconds = 0, left = 0; // left: bytes that cannot be saved
  };

  explicit SortedSavings(std::vector<Saving> savings);
  Spent spend(double bytes) const;

private:
  std::vector<Saving> savings;
  std::vector<Saving> before; // of all before each: seconds in place of the price
};

} // namespace cleave::planner
