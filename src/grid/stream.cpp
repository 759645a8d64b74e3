#include "weft/grid/stream.hpp"

#include "grid/step_states.hpp"
#include "weft/grad.hpp"

namespace weft::grid {

Stream::Stream(const Network& network) : network_(network), states_(std::make_unique<StepStates>()) {}
Stream::~Stream() = default;

Tensor Stream::next(const Tensor& x, Where where) {
  const NoGrad no_grad;
  StepStates after = *states_;  // which stay as they were if this throws
  std::vector<Tensor> made = {network_.pass(x, &after, where).output};
  for (auto& [path, state] : after.layers)
    for (Tensor& kept : state.kept) {
      kept = detach(kept);
      made.push_back(kept);
    }
  eval(made);
  *states_ = std::move(after);
  return made.front();
}

void Stream::reset() { *states_ = StepStates(); }

}  // namespace weft::grid
