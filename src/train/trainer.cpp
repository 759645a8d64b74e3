#include "weft/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::train {
namespace {

constexpr int kIgnored = -100;  // a target that is not counted

Tensor loss_of(const nn::GPT& model, const Tensor& tokens, const Tensor& targets) {
  return model.loss(tokens, targets, kIgnored);
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const TextData& data) : Trainer(config, data, nullptr) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint& checkpoint)
    : Trainer(config, data, &checkpoint) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint* checkpoint)
    : config_(config),
      data_(data),
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
      compiled_loss_([this](std::span<const Tensor> arguments) {
        const Autocast scope(config_.precision);
        return std::vector<Tensor>{loss_of(model_, arguments[0], arguments[1])};
      }) {
  try {
    manual_seed(static_cast<std::uint32_t>(config.seed));
    model_.initialize(config.seed);
    model_.set_recompute(config.recompute);
    if (checkpoint) model_.load_state_dict(checkpoint->model);
    optimizer_.emplace(model_, optim::AdamWOptions{.learning_rate = config.learning_rate,
                                                   .beta_1 = config.beta_1,
                                                   .beta_2 = config.beta_2,
                                                   .weight_decay = config.weight_decay,
                                                   .clip_norm = config.clip_norm});
    if (config.precision == DType::f16) loss_scale_.emplace();
    if (config.accumulate > 1) sum_.emplace(optimizer_->parameters());
    if (!checkpoint) return;
    optimizer_->load_state_dict(checkpoint->optimizer);
    if (!checkpoint->random_state) throw UsageError("the random state is missing");
    nn::write_state(std::vector<nn::NamedVariable>{{checkpoint->random_state->name, random_state()}},
                    {*checkpoint->random_state}, true, "random numbers");
    if (loss_scale_ && !checkpoint->loss_scale.empty()) loss_scale_->load_state_dict(checkpoint->loss_scale);
    step_ = checkpoint->step;
  } catch (const UsageError& error) {
    if (!checkpoint) throw;
    throw FileError(fmt::format("the checkpoint of step {} does not fit its own configuration: {}", checkpoint->step,
                                error.what()));
  }
}

std::pair<Tensor, std::vector<Tensor>> Trainer::loss_and_gradients(const Tensor& batch) {
  const Autocast scope(config_.precision);
  const Extent context = batch.dim(1) - 1;
  const Tensor loss = loss_of(model_, narrow(batch, 1, 0, context), narrow(batch, 1, 1, context));
  return {loss, grad(loss_scale_ ? loss_scale_->apply(loss) : loss, optimizer_->parameters())};
}

Tensor Trainer::update(std::span<const Tensor> gradients, const Tensor& learning_rate) {
  return loss_scale_ ? optimizer_->step(gradients, learning_rate, *loss_scale_)
                     : optimizer_->step(gradients, learning_rate);
}

Trainer::Arguments Trainer::next_arguments(double elapsed) {
  const Extent length = config_.model.context + 1, parts = config_.accumulate;
  const std::vector<Token> drawn =
      draw_batch(data_.training(), config_.seed, static_cast<std::uint64_t>(step_), parts * config_.batch, length);
  learning_rate_ = config_.learning_rate_at(step_, elapsed);
  const auto number = static_cast<float>(learning_rate_);
  Arguments arguments{tensor_from_bytes(&number, {}, DType::f32), {}};
  for (Extent part = 0; part < parts; ++part)
    arguments.batches.push_back(
        tensor_from_bytes(drawn.data() + part * config_.batch * length, {config_.batch, length}, DType::i32));
  return arguments;
}

Trainer::StepResult Trainer::step(double elapsed) {
  const auto [rate, batches] = next_arguments(elapsed);
  StepResult result;
  if (batches.size() == 1) {
    const Tensor arguments[] = {rate, batches[0]};
    const std::vector<Tensor> results = compiled_step_(arguments);
    result = {results[1], results[0]};
  } else {
    for (const Tensor& batch : batches) {
      const Tensor arguments[] = {batch};
      const Tensor loss = compiled_add_(arguments)[0];
      result.loss = result.loss.defined() ? result.loss + loss : loss;
    }
    result.loss = result.loss / static_cast<double>(batches.size());
    const Tensor arguments[] = {rate};
    result.grad_norm = compiled_step_(arguments)[0];
  }
  ++step_;
  return result;
}

Profile Trainer::profile() {
  const auto [rate, batches] = next_arguments(0);
  const Tensor both[] = {rate, batches[0]};
  return batches.size() == 1 ? compiled_step_.measure(both) : compiled_add_.measure(std::span(both).subspan(1));
}

Trainer::Evaluation Trainer::evaluate(std::int64_t batches) {
  const std::span<const Token> tokens = data_.validation();
  const Extent context = config_.model.context, rows = config_.batch;
  const auto targets = static_cast<Extent>(tokens.size()) - 1;
  const Extent windows = (targets + context - 1) / context;
  const Extent wanted = batches > 0 ? std::min<Extent>(batches * rows, windows) : windows;

  model_.eval();
  Evaluation result;
  double sum = 0;
  for (Extent first = 0; first < wanted; first += rows) {
    std::vector<Token> inputs(static_cast<std::size_t>(rows * context), 0), expected(inputs.size(), kIgnored);
    Extent counted = 0;
    for (Extent row = 0; row < std::min(rows, wanted - first); ++row) {
      const Extent window = wanted == windows ? first + row : (first + row) * windows / wanted;
      const Extent begin = window * context, length = std::min(context, targets - begin);
      std::copy_n(tokens.begin() + begin, length, inputs.begin() + row * context);
      std::copy_n(tokens.begin() + begin + 1, length, expected.begin() + row * context);
      counted += length;
    }
    const Tensor arguments[] = {tensor_from_bytes(inputs.data(), {rows, context}, DType::i32),
                                tensor_from_bytes(expected.data(), {rows, context}, DType::i32)};
    sum += static_cast<double>(compiled_loss_(arguments)[0].item<float>()) * static_cast<double>(counted);
    result.tokens += counted;
  }
  model_.train();
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint c;
  c.config = config_;
  c.vocabulary = data_.vocabulary;
  c.step = step_;
  c.model = model_.state_dict();
  c.optimizer = optimizer_->state_dict();
  if (loss_scale_) c.loss_scale = loss_scale_->state_dict();
  c.random_state = nn::read_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}})[0];
  return c;
}

}  // namespace weft::train
