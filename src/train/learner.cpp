#include "train/learner.hpp"

#include <fmt/format.h>

#include "train/buckets.hpp"
#include "train/run_optimizer.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::train {
namespace {

/// Other dropout at each member, at the same place of its sequence: so a resumed run draws what the first one would have.
void set_apart_random_state(int rank) {
  std::vector<std::uint32_t> state = random_state().value().to_vector<std::uint32_t>();
  state[0] ^= 0x9e3779b9u * static_cast<std::uint32_t>(rank);
  random_state().assign(tensor<std::uint32_t>(state));
}

Tensor rate_tensor(double rate) { return tensor(static_cast<float>(rate)); }

}  // namespace

std::uint64_t state_bytes(const RunConfig& config) {
  const nn::GPT model(config.model);
  const Extent count = model.parameter_count() * (config.accumulate > 1 ? 2 : 1) + state_numel(config, model);
  return static_cast<std::uint64_t>(count) * sizeof(float);
}

Learner::Learner(const RunConfig& config, const Checkpoint* checkpoint, const parallel::Member* member)
    : config_(config),
      model_(config.model),
      compiled_step_([this](std::span<const Tensor> arguments) {
        if (sum_) return std::vector<Tensor>{update(sum_->take_mean(), arguments[0])};
        const auto [loss, gradients] = loss_and_gradients(arguments[1]);
        return std::vector<Tensor>{update(gradients, arguments[0]), loss};
      }),
      compiled_add_([this](std::span<const Tensor> arguments) {
        const auto [loss, gradients] = loss_and_gradients(arguments[0]);
        sum_->add(gradients);
        return std::vector<Tensor>{loss};
      }),
      compiled_gradients_([this](std::span<const Tensor> arguments) {
        if (sum_) return join_in_buckets(sum_->take_mean(), config_.exchange);
        auto [loss, gradients] = loss_and_gradients(arguments[0]);
        std::vector<Tensor> results = join_in_buckets(gradients, config_.exchange);
        results.push_back(loss);
        return results;
      }),
      compiled_update_([this](std::span<const Tensor> arguments) {
        std::vector<Shape> shapes;
        for (const Variable& parameter : optimizer_->parameters()) shapes.push_back(parameter.shape());
        return std::vector<Tensor>{update(split_buckets(arguments.subspan(1), shapes), arguments[0])};
      }),
      compiled_loss_([this](std::span<const Tensor> arguments) {
        const Autocast scope(config_.precision);
        return std::vector<Tensor>{model_.loss(arguments[0], arguments[1], kIgnored)};
      }) {
  if (member) member_ = *member;
  try {
    manual_seed(static_cast<std::uint32_t>(config.seed));
    model_.initialize(config.seed);
    model_.set_recompute(config.recompute);
    if (checkpoint) model_.load_state_dict(checkpoint->model);
    optimizer_ = make_optimizer(config, model_, true);
    if (config.precision == DType::f16) loss_scale_.emplace();
    if (config.accumulate > 1) sum_.emplace(optimizer_->parameters());
    if (checkpoint) {
      optimizer_->load_state_dict(checkpoint->optimizer);
      if (!checkpoint->random_state) throw UsageError("the random state is missing");
      nn::write_state(std::vector<nn::NamedVariable>{{checkpoint->random_state->name, random_state()}},
                      {*checkpoint->random_state}, true, "random numbers");
      if (loss_scale_ && !checkpoint->loss_scale.empty()) loss_scale_->load_state_dict(checkpoint->loss_scale);
    }
    if (member && member->rank() > 0) set_apart_random_state(member->rank());
  } catch (const UsageError& error) {
    if (!checkpoint) throw;
    throw FileError(fmt::format("the checkpoint of step {} does not fit its own configuration: {}", checkpoint->step,
                                error.what()));
  }
}

Learner::LossAndGradients Learner::loss_and_gradients(const Tensor& batch) {
  const Autocast scope(config_.precision);
  const Extent context = batch.dim(1) - 1;
  const Tensor loss = model_.loss(narrow(batch, 1, 0, context), narrow(batch, 1, 1, context), kIgnored);
  return {loss, grad(loss_scale_ ? loss_scale_->apply(loss) : loss, optimizer_->parameters())};
}

Tensor Learner::update(std::span<const Tensor> gradients, const Tensor& learning_rate) {
  return loss_scale_ ? optimizer_->step(gradients, learning_rate, *loss_scale_)
                     : optimizer_->step(gradients, learning_rate);
}

Learner::StepResult Learner::step(double learning_rate, std::span<const Tensor> batches) {
  const Tensor rate = rate_tensor(learning_rate);
  if (!member_ && !sum_) {
    const Tensor arguments[] = {rate, batches[0]};
    const std::vector<Tensor> results = compiled_step_(arguments);
    return {results[1], results[0]};
  }
  StepResult result;
  if (sum_) {
    for (const Tensor& batch : batches) {
      const Tensor loss = compiled_add_(std::span(&batch, 1))[0];
      result.loss = result.loss.defined() ? result.loss + loss : loss;
    }
    result.loss = result.loss / static_cast<double>(batches.size());
  }
  if (!member_) {
    result.grad_norm = compiled_step_(std::span(&rate, 1))[0];
    return result;
  }
  std::vector<Tensor> sent = compiled_gradients_(sum_ ? std::span<const Tensor>() : batches);
  if (sum_) sent.push_back(result.loss);
  std::vector<Tensor> means = member_->all_reduce_mean(sent);
  result.loss = means.back();
  means.pop_back();
  means.insert(means.begin(), rate);
  result.grad_norm = compiled_update_(means)[0];
  return result;
}

Tensor Learner::loss(const Tensor& inputs, const Tensor& targets) {
  const Tensor arguments[] = {inputs, targets};
  return compiled_loss_(arguments)[0];
}

std::uint64_t Learner::planned_step_bytes(Extent rows) {
  const Tensor arguments[] = {rate_tensor(0), zeros({rows, config_.model.context + 1}, DType::i32)};
  const auto rate = std::span(arguments).first(1), batch = std::span(arguments).subspan(1);
  const auto planned = [](Compiled& function, std::span<const Tensor> given) {
    function.prepare(given);
    return static_cast<std::uint64_t>(function.scratch_bytes());
  };
  if (sum_)
    return planned(compiled_add_, batch) + (member_ ? planned(compiled_gradients_, {}) : planned(compiled_step_, rate));
  return member_ ? planned(compiled_gradients_, batch) : planned(compiled_step_, arguments);
}

std::uint64_t Learner::planned_loss_bytes(Extent rows) {
  const Tensor tokens = zeros({rows, config_.model.context}, DType::i32);
  const Tensor both[] = {tokens, tokens};
  model_.eval();
  compiled_loss_.prepare(both);
  model_.train();
  return compiled_loss_.scratch_bytes();
}

Profile Learner::profile(double learning_rate, const Tensor& batch) {
  const Tensor both[] = {rate_tensor(learning_rate), batch};
  if (sum_) return compiled_add_.measure(std::span(both).subspan(1));
  return member_ ? compiled_gradients_.measure(std::span(both).subspan(1)) : compiled_step_.measure(both);
}

void Learner::save_to(Checkpoint& checkpoint) const {
  checkpoint.model = model_.state_dict();
  checkpoint.optimizer = optimizer_->state_dict();
  if (loss_scale_) checkpoint.loss_scale = loss_scale_->state_dict();
  checkpoint.random_state = nn::read_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}})[0];
}

}  // namespace weft::train
