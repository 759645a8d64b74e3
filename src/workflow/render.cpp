#include "weft/workflow/render.hpp"

#include "weft/error.hpp"
#include "weft/workflow/check.hpp"

namespace weft::workflow {

std::vector<tree::Edit> Rendered::render(const Value& workflow) {
  if (version_ > 0 && workflow == given_) return {};
  Template made = template_from(workflow);
  if (const auto problems = check(made, exchange_.registry()); !problems.empty())
    throw UsageError("the workflow cannot run:\n" + to_string(problems));
  std::vector<tree::Edit> edits;
  if (version_ > 0) edits = tree::difference(to_value(template_.tree), to_value(made.tree));
  template_ = std::move(made);
  given_ = workflow;
  ++version_;
  return edits;
}

Run Rendered::start(Value input, const RunOptions& options) const {
  if (version_ == 0) throw UsageError("the workflow was not rendered yet; call render first");
  return detail::start_sound(exchange_, template_, std::move(input), options);
}

}  // namespace weft::workflow
