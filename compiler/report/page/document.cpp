#include "compiler/report/page/document.h"
#include <fmt/format.h>

namespace cleave::report {
namespace {

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc23-extensions"
constexpr char style[] = {
#embed "page.css"
    , 0};
constexpr char script[] = {
#embed "page.js"
    , 0};
constexpr char timelineScript[] = {
#embed "timeline.js"
    , 0};
#pragma clang diagnostic pop

// Does the column hold numbers, with or without a unit? They align right.
bool isNumber(const std::vector<Row> &rows, size_t column) {
  bool any = false;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string &cell = column < rows[i].size() ? rows[i][column] : "";
    if (cell.empty() || cell == "-") continue;
    const size_t sign = cell[0] == '+' || cell[0] == '-';
    if (sign >= cell.size() || !std::isdigit(uint8_t(cell[sign])) || cell.find_first_of(",[=(") != std::string::npos)
      return false;
    any = true;
  }
  return any;
}

} // namespace

std::string table(const std::string &caption, const std::vector<Row> &rows,
                  const std::function<std::string(size_t)> &attributes) {
  std::vector<const char *> classes;
  for (size_t i = 0; i < rows[0].size(); ++i) classes.push_back(isNumber(rows, i) ? " class=\"number\"" : "");
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>"
                  "{0}</caption><thead><tr>",
                  escape(caption));
  for (size_t i = 0; i < rows[0].size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", classes[i], escape(rows[0][i]));
  out += "</tr></thead>\n<tbody>";
  for (size_t r = 1; r < rows.size(); ++r) {
    out += fmt::format("<tr{}>", attributes ? attributes(r - 1) : "");
    for (size_t i = 0; i < rows[r].size(); ++i)
      out += fmt::format("<td{} data-head=\"{}\">{}</td>", i < classes.size() ? classes[i] : "",
                         i < rows[0].size() ? escape(rows[0][i]) : "", escape(rows[r][i]));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

void Document::section(const std::string &id, const std::string &name, const std::string &html) {
  links += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, escape(name));
  sections +=
      fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}</section>\n", id, escape(name), html);
}

std::string Document::take() const {
  return fmt::format(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{head}</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{sections}</main>
<script>
{script}</script>
<script>
{timeline}</script>
</body>
</html>
)",
                     fmt::arg("title", escape(title)), fmt::arg("style", style), fmt::arg("head", head),
                     fmt::arg("links", links), fmt::arg("sections", sections), fmt::arg("script", script),
                     fmt::arg("timeline", timelineScript));
}

} // namespace cleave::report
