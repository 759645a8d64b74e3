#include "weft/nn/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::nn {
namespace {

std::string join_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// "128 [3, 4]" of everything below, so that equal modules have equal texts.
std::string signature(const Module& module) {
  std::string text = module.describe() + "(";
  for (const auto& [name, shape] : module.own_parameters()) text += name + shape.to_string();
  for (const auto& [name, child] : module.children()) text += name + signature(*child);
  return text + ")";
}

void collect(const Module& module, const std::string& prefix, int repeats, std::vector<TableRow>& rows) {
  TableRow row{prefix.empty() ? "(model)" : prefix, module.describe(), "", repeats, 0, module.own_flops() * repeats};
  for (const auto& [name, shape] : module.own_parameters()) {
    row.shape += (row.shape.empty() ? "" : " + ") + shape.to_string();
    row.parameters += shape.numel() * repeats;
  }
  if (row.parameters > 0 || row.flops > 0) rows.push_back(row);

  const auto children = module.children();
  for (std::size_t i = 0; i < children.size();) {
    std::size_t end = i + 1;
    const std::string first = signature(*children[i].second);
    const bool numbered = children[i].first == std::to_string(i);
    while (numbered && end < children.size() && signature(*children[end].second) == first) ++end;
    const std::string name = end - i > 1 ? fmt::format("{}-{}", i, end - 1) : children[i].first;
    collect(*children[i].second, join_name(prefix, name), repeats * static_cast<int>(end - i), rows);
    i = end;
  }
}

std::string grouped(Extent value) {
  std::string digits = std::to_string(value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string cut(std::string text, std::size_t width) {
  if (text.size() > width) text = text.substr(0, width - 2) + "..";
  return text;
}

}  // namespace

std::vector<TableRow> table_of(const Module& module) {
  std::vector<TableRow> rows;
  collect(module, "", 1, rows);
  return rows;
}

std::string to_text(const std::vector<TableRow>& rows, int columns) {
  std::size_t name_width = 5, layer_width = 5, shape_width = 5;
  Extent parameters = 0;
  double flops = 0;
  for (const TableRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    layer_width = std::max(layer_width, row.layer.size());
    shape_width = std::max(shape_width, row.shape.size());
    parameters += row.parameters;
    flops += row.flops;
  }
  // Numbers keep 35 columns. Layers and shapes repeat each other, so they are shortened before the names.
  const std::size_t room = static_cast<std::size_t>(std::max(columns - 35, 30));
  const std::pair<std::size_t*, std::size_t> widths[] = {
      {&layer_width, 20}, {&shape_width, 18}, {&name_width, 10}, {&layer_width, 8}, {&shape_width, 6}};
  for (const auto& [width, least] : widths)
    while (*width > least && name_width + layer_width + shape_width > room) --*width;

  auto line = [&](const std::string& name, const std::string& layer, const std::string& shape, Extent count,
                  double operations) {
    return fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>11}  {:>7.2f}  {:>7.2f}\n", cut(name, name_width), name_width,
                       cut(layer, layer_width), layer_width, cut(shape, shape_width), shape_width, grouped(count),
                       static_cast<double>(count) * 4e-6, operations * 1e-6);
  };
  std::string text = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>11}  {:>7}  {:>7}\n", "name", name_width, "layer",
                                 layer_width, "shape", shape_width, "parameters", "MB", "MFLOP");
  for (const TableRow& row : rows) text += line(row.name, row.layer, row.shape, row.parameters, row.flops);
  text += line("total", "", "", parameters, flops);
  return text;
}

}  // namespace weft::nn
