// Renders what template_judge.py asks for: a JSON object a line in, {"template", "variables", "now"}; one a line out,
// {"text"} or {"error"}.
#include <iostream>
#include <string>

#include "jinja/template.hpp"
#include "weft/error.hpp"

namespace {

using weft::jinja::OrderedJson;

OrderedJson answer(const OrderedJson& request) {
  std::vector<weft::jinja::TemplateVariable> variables;
  for (const auto& [name, value] : request["variables"].items()) variables.push_back({name, value});
  std::tm now{};
  strptime(request["now"].get<std::string>().c_str(), "%Y-%m-%d %H:%M:%S", &now);
  try {
    const weft::jinja::Template parsed(request["template"].get<std::string>(), "template");
    return {{"text", parsed.render(variables, now).text()}};
  } catch (const weft::FileError& error) {
    return {{"error", error.what()}};
  } catch (const weft::UsageError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(weft::jinja::parse_ordered_json(line, "request")).dump() << "\n";
}
