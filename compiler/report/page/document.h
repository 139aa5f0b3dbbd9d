// A page of its own: style and script within, nothing loaded from elsewhere; scripts only sort, filter, search,
// copy, and draw the timeline.
//
//   Document page("model on cluster");
//   page.header("<p>...</p>");
//   page.section("time", "Step time", table("By layer", rows));
//   std::string html = page.take();
#pragma once
#include "compiler/report/tables.h"
#include <functional>
#include <string>
#include <vector>

namespace cleave::report {

// The first row has the heads; numbers align right. `attributes` of a row by its number from 0.
std::string table(const std::string &caption, const std::vector<Row> &rows,
                  const std::function<std::string(size_t)> &attributes = {});

class Document {
public:
  explicit Document(const std::string &title) : title(title) {}
  void header(const std::string &html) { head += html; } // below the title
  void section(const std::string &id, const std::string &title, const std::string &html);
  std::string take() const;

private:
  std::string title, head, links, sections;
};

} // namespace cleave::report
