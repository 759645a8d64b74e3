#include "train/pipeline_stage.hpp"
#include "train/run_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/xxh64.hpp"
#include "parallel/contiguous_parts.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::train {
namespace {

const nn::Module& child_of(const nn::Module& module, std::string_view name) {
  for (const auto& [found, child] : module.children())
    if (found == name) return *child;
  throw InternalError(fmt::format("train: the model has no part {}", name));
}

void add_parameters(std::vector<nn::NamedParameter>& list, const nn::Module& module) {
  for (nn::NamedParameter& p : module.named_parameters())
    list.push_back({module.path() + "." + p.name, std::move(p.variable), p.decay});
}

/// The entries with these names, which all have to be there; others are not looked at.
nn::StateDict entries_of(const nn::StateDict& state, const nn::StateDict& wanted) {
  nn::StateDict entries;
  for (const nn::NamedArray& each : wanted)
    if (const nn::NamedArray* found = nn::find(state, each.name)) entries.push_back(*found);
  return entries;
}

Tensor squares_of(const Tensor& x) { return sum(x * x); }

}  // namespace

std::vector<Extent> blocks_of_stages(const nn::GptConfig& model, std::size_t stages) {
  if (static_cast<Extent>(stages) > model.layers)
    throw UsageError(fmt::format("a model of {} layers cannot be divided over {} devices; name at most {}",
                                 model.layers, stages, model.layers));
  const double width = static_cast<double>(model.width), table = width * static_cast<double>(model.vocabulary);
  return parallel::choose_layers(model.layers, stages, [&](std::size_t, Extent first, Extent last) {
    const double blocks = 12 * width * width * static_cast<double>(last - first);
    return blocks + (first == 0 ? table + width * static_cast<double>(model.context) : 0) +
           (last == model.layers ? table : 0);
  });
}

PipelineStage::PipelineStage(const RunConfig& config, const Checkpoint* checkpoint, const parallel::Member& member)
    : config_(config),
      member_(member),
      model_(config.model),
      forward_([this](std::span<const Tensor> arguments) { return std::vector{part(arguments[0])}; }),
      backward_([this](std::span<const Tensor> arguments) {
        const Tensor x = is_first() ? arguments[0] : alias(arguments[0]);
        return with_gradients(part(x), x, arguments[1]);
      }),
      loss_and_backward_([this](std::span<const Tensor> arguments) {
        const Tensor x = alias(arguments[0]), targets = narrow(arguments[1], 1, 1, config_.model.context);
        Tensor loss;
        {
          const Tensor states = part(x);
          const Autocast scope(config_.precision);
          loss = model_.loss_behind_blocks(states, targets, kIgnored);
        }
        std::vector<Tensor> results = with_gradients(loss, x, {});
        results.push_back(loss);
        return results;
      }),
      means_([this](std::span<const Tensor>) {
        std::vector<Tensor> results = sum_->take_mean();
        const std::optional<std::size_t> tied = tied_table();
        Tensor squares = zeros({});
        for (std::size_t i = 0; i < parameters_.size(); ++i)
          if (i != tied) squares = squares + squares_of(results[i]);
        results.push_back(squares);
        return results;
      }),
      update_([this](std::span<const Tensor> arguments) {
        const Tensor norm = sqrt(arguments[1]);
        std::vector<Tensor> gradients(arguments.begin() + 2, arguments.end());
        if (config_.clip_norm > 0) {
          // As optim::clip_grad_norm, with the norm over all stages.
          const Tensor factor = elementwise("minimum", {config_.clip_norm / (norm + 1e-6), scalar_like(1, norm)});
          for (Tensor& gradient : gradients) gradient = gradient * factor;
        }
        optimizer_->step(gradients, arguments[0]);
        return std::vector{norm};
      }),
      evaluate_([this](std::span<const Tensor> arguments) {
        const Tensor states = part(arguments[0]);
        const Autocast scope(config_.precision);
        return std::vector{model_.loss_behind_blocks(states, arguments[1], kIgnored)};
      }) {
  const auto rank = static_cast<std::size_t>(member.rank());
  const std::vector<Extent> blocks = blocks_of_stages(config.model, static_cast<std::size_t>(member.size()));
  first_block_ = std::accumulate(blocks.begin(), blocks.begin() + member.rank(), Extent{0});
  last_block_ = first_block_ + blocks[rank];
  try {
    manual_seed(static_cast<std::uint32_t>(config.seed));
    model_.initialize(config.seed);
    model_.set_recompute(config.recompute);
    // Parameters are made when they are named, so those of other stages take no memory.
    if (is_first())
      for (const char* name : {"token_embedding", "position_embedding"})
        add_parameters(parameters_, child_of(model_, name));
    const nn::Module& list = child_of(model_, "blocks");
    for (Extent i = first_block_; i < last_block_; ++i) add_parameters(parameters_, child_of(list, std::to_string(i)));
    if (is_last()) {
      add_parameters(parameters_, child_of(model_, "norm"));
      add_parameters(parameters_, child_of(model_, config.model.tied ? "token_embedding" : "head"));
    }
    const std::vector<nn::NamedVariable> named = named_variables();
    if (checkpoint) nn::write_state(named, entries_of(checkpoint->model, nn::read_state(named)), true, "the model");
    optimizer_ = make_optimizer(config, optim::ParameterList(parameters_), false);
    sum_.emplace(optimizer_->parameters());
    if (checkpoint) optimizer_->load_state_dict(entries_of(checkpoint->optimizer, optimizer_->state_dict()));
  } catch (const UsageError& error) {
    if (!checkpoint) throw;
    throw FileError(fmt::format("the checkpoint of step {} does not fit its own configuration: {}", checkpoint->step,
                                error.what()));
  }
}

std::vector<nn::NamedVariable> PipelineStage::named_variables() const {
  std::vector<nn::NamedVariable> named;
  for (const nn::NamedParameter& p : parameters_) named.push_back({p.name, p.variable});
  return named;
}

std::optional<std::size_t> PipelineStage::tied_table() const {
  if (!config_.model.tied || !(is_first() || is_last())) return std::nullopt;
  return is_first() ? 0 : parameters_.size() - 1;
}

/// What the stage makes of tokens, or of the states that the stage before gave; of the last one, what its blocks give.
Tensor PipelineStage::part(const Tensor& given) const {
  const Autocast scope(config_.precision);
  // Batches to train on have one token more, the last target.
  const Tensor x = is_first() ? model_.embed(narrow(given, 1, 0, config_.model.context)) : given;
  return model_.run_blocks(x, first_block_, last_block_);
}

/// Adds the gradients of the parameters to the sums, and gives that of x, but for tokens.
std::vector<Tensor> PipelineStage::with_gradients(const Tensor& y, const Tensor& x, const Tensor& seed) {
  std::vector<Tensor> inputs;
  for (const Variable& parameter : optimizer_->parameters()) inputs.push_back(parameter.value());
  if (!is_first()) inputs.push_back(x);
  std::vector<Tensor> gradients = grad(y, inputs, seed);
  std::vector<Tensor> results;
  if (!is_first()) {
    results.push_back(gradients.back());
    gradients.pop_back();
  }
  sum_->add(gradients);
  return results;
}

/// Dropout is drawn by (seed, step, batch, stage), so that blocks that are computed again draw the same, and so does a resumed run.
void PipelineStage::set_random_state(std::int64_t step, Extent batch) const {
  if (config_.model.dropout == 0) return;
  const std::array<std::uint64_t, 4> place = {config_.seed, static_cast<std::uint64_t>(step),
                                              static_cast<std::uint64_t>(batch),
                                              static_cast<std::uint64_t>(member_.rank())};
  const auto seed = static_cast<std::uint32_t>(xxh64(std::as_bytes(std::span(place))));
  random_state().assign(tensor<std::uint32_t>(std::vector<std::uint32_t>{seed, 0}));
}

void PipelineStage::forward(std::int64_t step, Extent batch, const Batches& batches) {
  const Tensor x = is_first() ? batches(batch) : member_.receive(member_.rank() - 1);
  set_random_state(step, batch);
  if (!is_last()) {
    member_.send(member_.rank() + 1, forward_(std::span(&x, 1))[0]);
    inputs_.push_back(x);
    return;
  }
  const Tensor arguments[] = {x, batches(batch)};
  const std::vector<Tensor> results = loss_and_backward_(arguments);
  member_.send(member_.rank() - 1, results[0]);
  loss_ = loss_.defined() ? loss_ + results[1] : results[1];
}

void PipelineStage::backward(std::int64_t step, Extent batch) {
  const Tensor arguments[] = {inputs_.front(), member_.receive(member_.rank() + 1)};
  inputs_.pop_front();
  set_random_state(step, batch);
  const std::vector<Tensor> results = backward_(arguments);
  if (!is_first()) member_.send(member_.rank() - 1, results[0]);
}

PipelineStage::StepResult PipelineStage::step(std::int64_t step, double learning_rate, const Batches& batches) {
  const Extent count = config_.accumulate;
  inputs_.clear();
  loss_ = {};
  // As many batches go ahead as there are stages behind this one; then one goes back for each that goes forward.
  const Extent ahead = std::min<Extent>(count, member_.size() - 1 - member_.rank());
  for (Extent i = 0; i < count; ++i) {
    forward(step, i, batches);
    if (!is_last() && i >= ahead) backward(step, i - ahead);
  }
  if (!is_last())
    for (Extent i = count - ahead; i < count; ++i) backward(step, i);

  std::vector<Tensor> means = means_({});
  Tensor squares = means.back();
  means.pop_back();
  if (const std::optional<std::size_t> tied = tied_table()) {
    const int other = is_first() ? member_.size() - 1 : 0;
    member_.send(other, means[*tied]);
    const Tensor theirs = member_.receive(other);
    means[*tied] = is_first() ? means[*tied] + theirs : theirs + means[*tied];
    if (is_first()) squares = squares + squares_of(means[*tied]);
  }
  const auto stages = static_cast<double>(member_.size());
  const Tensor own_loss = is_last() ? loss_ / static_cast<double>(count) : zeros({});
  const Tensor sums[] = {squares * stages, own_loss * stages};
  std::vector<Tensor> all = member_.all_reduce_mean(sums);
  std::vector<Tensor> arguments = {tensor(static_cast<float>(learning_rate)), all[0]};
  arguments.insert(arguments.end(), means.begin(), means.end());
  return {all[1], update_(arguments)[0]};
}

Tensor PipelineStage::loss(const Tensor& inputs, const Tensor& targets) {
  const Tensor x = is_first() ? inputs : member_.receive(member_.rank() - 1);
  if (!is_last()) {
    member_.send(member_.rank() + 1, forward_(std::span(&x, 1))[0]);
    return {};
  }
  const Tensor arguments[] = {x, targets};
  return evaluate_(arguments)[0];
}

void PipelineStage::save_to(Checkpoint& checkpoint) const {
  const std::string copied = is_last() && config_.model.tied ? parameters_.back().name : std::string();
  const auto add = [&](nn::StateDict& to, nn::StateDict from) {
    for (nn::NamedArray& entry : from) {
      if (nn::find(to, entry.name)) continue;  // counters, which all stages have
      if (!copied.empty() && (entry.name == copied || entry.name.ends_with("." + copied))) continue;
      to.push_back(std::move(entry));
    }
  };
  add(checkpoint.model, nn::read_state(named_variables()));
  add(checkpoint.optimizer, optimizer_->state_dict());
  if (is_first())
    checkpoint.random_state = nn::read_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}})[0];
}

}  // namespace weft::train
