// Training runs as operations: they can be started, observed by any number of subscribers, and stopped.
#include <fmt/format.h>

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "catalogue/families.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/session.hpp"
#include "weft/train/run.hpp"

namespace weft::operations {
namespace {

// A run in a separate thread and session. Its events are kept, so that late subscribers see all of them.
class TrainingRun : public train::Observer {
 public:
  TrainingRun(std::string owner, train::TrainRequest request) : owner_(std::move(owner)), request_(std::move(request)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~TrainingRun() override { thread_.request_stop(); }

  const std::string& owner() const { return owner_; }
  void stop() { thread_.request_stop(); }

  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  // Waits for event `i`; nothing after the last one.
  std::optional<Value> event(std::size_t i, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return done_ || events_.size() > i; });
    if (events_.size() > i) return events_[i];
    return std::nullopt;
  }

  void begin(const train::RunStart& start) override {
    add(Value::object(
        {{"event", "begin"}, {"folder", start.folder.string()}, {"resumed", start.resumed}, {"steps", start.steps}}));
  }
  void step(const train::Metrics& m) override {
    Value::Object event{{"event", "step"},
                        {"step", m.step},
                        {"loss", finite_or_null(m.loss)},
                        {"tokens_per_second", finite_or_null(m.tokens_per_second)},
                        {"learning_rate", m.learning_rate},
                        {"grad_norm", finite_or_null(m.grad_norm)},
                        {"seconds", m.seconds}};
    if (m.val_loss) event.set("validation_loss", finite_or_null(*m.val_loss));
    add(std::move(event));
  }
  void sample(const train::Sample& sample) override {
    add(Value::object({{"event", "sample"}, {"step", sample.step}, {"text", sample.text}}));
  }
  void checkpoint(const train::SavedCheckpoint& saved) override {
    add(Value::object(
        {{"event", "checkpoint"}, {"step", saved.step}, {"path", saved.path.string()}, {"best", saved.best}}));
  }
  void warning(std::string_view text) override { add(Value::object({{"event", "warning"}, {"text", text}})); }

 private:
  void run(const std::stop_token& stop) {
    Value last;
    try {
      const Session session;
      const auto in = session.enter();
      train::Observer* const self = this;
      const train::TrainResult result = train::train_text(request_, std::span(&self, 1), stop);
      last = Value::object({{"event", "end"},
                            {"steps", result.steps},
                            {"seconds", result.seconds},
                            {"validation_loss", finite_or_null(result.validation_loss)},
                            {"interrupted", result.interrupted}});
    } catch (const std::exception& error) {
      last = Value::object({{"event", "error"}, {"text", error.what()}});
    }
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(last));
      done_ = true;
    }
    changed_.notify_all();
  }
  void add(Value event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  const std::string owner_;
  const train::TrainRequest request_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Value> events_;
  bool done_ = false;
  std::jthread thread_;  // the last member, so that it ends first
};

class TrainingRuns {
 public:
  std::string start(std::string owner, train::TrainRequest request) {
    const std::lock_guard lock(mutex_);
    int running = 0;
    for (const auto& [id, run] : runs_) running += !run->is_done();
    if (running >= kRunningMax)
      throw OperationError(kOverloaded, fmt::format("{} runs are under way, which is the limit", running));
    if (runs_.size() >= kKeptMax)
      for (auto it = runs_.begin(); it != runs_.end(); ++it)
        if (it->second->is_done()) {
          runs_.erase(it);
          break;
        }
    const std::string id = fmt::format("run-{}", ++count_);
    runs_.emplace(id, std::make_shared<TrainingRun>(std::move(owner), std::move(request)));
    return id;
  }
  std::shared_ptr<TrainingRun> find(const std::string& id, const std::string& owner) const {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find(id);
    if (found == runs_.end() || found->second->owner() != owner)
      throw OperationError("RUN_NOT_FOUND", fmt::format("there is no run {}", quote(id)));
    return found->second;
  }
  Value list(const std::string& owner) const {
    const std::lock_guard lock(mutex_);
    Value::Array all;
    for (const auto& [id, run] : runs_)
      if (run->owner() == owner) all.push_back(Value::object({{"run", id}, {"done", run->is_done()}}));
    return Value::object({{"runs", std::move(all)}});
  }

 private:
  static constexpr int kRunningMax = 4;
  static constexpr std::size_t kKeptMax = 100;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<TrainingRun>> runs_;
  int count_ = 0;
};

template <class T>
void read(const Value& input, std::string_view name, std::optional<T>& to) {
  const Value* value = input.find(name);
  if (!value) return;
  if constexpr (std::is_same_v<T, double>)
    to = value->number();
  else if constexpr (std::is_same_v<T, std::string>)
    to = value->string();
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    to = value->unsigned_integer();
  else
    to = value->integer();
}

train::TrainRequest training_request(const Value& input, const CatalogueOptions& options) {
  train::TrainRequest request;
  request.out = allowed_path(options, input["out"].string(), true);
  if (const Value* data = input.find("data")) request.data = allowed_path(options, data->string(), false);
  request.resume = input["resume"].boolean();
  request.device = input["device"].string();
  read(input, "preset", request.preset);
  read(input, "vocabulary", request.vocabulary);
  read(input, "steps", request.steps);
  read(input, "seconds", request.seconds);
  read(input, "seed", request.seed);
  read(input, "batch", request.batch);
  read(input, "context", request.context);
  read(input, "layers", request.layers);
  read(input, "heads", request.heads);
  read(input, "width", request.width);
  read(input, "dropout", request.dropout);
  read(input, "learning_rate", request.learning_rate);
  read(input, "log_every", request.log_every);
  read(input, "checkpoint_every", request.checkpoint_every);
  return request;
}

}  // namespace

void add_training_operations(Registry& registry, const CatalogueOptions& options) {
  auto runs = std::make_shared<TrainingRuns>();
  const DeclaredError missing{"RUN_NOT_FOUND", "no such run, or one of another caller", true, 404};
  const Value only_run = schema_of(
      R"({"type": "object", "required": ["run"], "additionalProperties": false, "properties": {"run": {"type": "string"}}})");
  registry.add(
      {.space = "training",
       .name = "start",
       .kind = Kind::mutation,
       .title = "start training",
       .description = "Trains a small GPT on a text, as `weft train text` does.",
       .input = schema_of(R"({"type": "object", "required": ["out"], "additionalProperties": false, "properties": {
                  "out": {"type": "string", "description": "folder of the run"}, "data": {"type": "string", "description": "a UTF-8 text"},
                  "resume": {"type": "boolean", "default": false}, "device": {"type": "string", "default": "cpu"}, "preset": {"type": "string"},
                  "vocabulary": {"enum": ["char", "byte"]}, "steps": {"type": "integer", "minimum": 1}, "seconds": {"type": "number", "exclusiveMinimum": 0},
                  "seed": {"type": "integer", "minimum": 0}, "batch": {"type": "integer", "minimum": 1}, "context": {"type": "integer", "minimum": 1},
                  "layers": {"type": "integer", "minimum": 1}, "heads": {"type": "integer", "minimum": 1}, "width": {"type": "integer", "minimum": 1},
                  "dropout": {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "learning_rate": {"type": "number", "exclusiveMinimum": 0},
                  "log_every": {"type": "integer", "minimum": 1}, "checkpoint_every": {"type": "integer", "minimum": 1}}})"),
       .output = only_run,
       .access = {.scopes = {"training:run"}}},
      [runs, options](Context& call) {
        return Value::object({{"run", runs->start(owner_of(call), training_request(call.input(), options))}});
      });
  registry.add(
      {.space = "training",
       .name = "observe",
       .kind = Kind::subscription,
       .title = "observe training",
       .description =
           "Everything that a run has told and will tell: begin, steps, samples, checkpoints, its end or error.",
       .input = only_run,
       .output = schema_of(R"({"type": "object", "required": ["event"], "properties": {"event": {"type": "string"}}})"),
       .errors = {missing},
       .access = {.scopes = {"training:read"}}},
      [runs](Context& call) {
        const auto run = runs->find(call.input("run").string(), owner_of(call));
        for (std::size_t i = 0; const auto event = run->event(i, call.stop()); ++i) call.emit(*event);
        call.check();
        return Value();
      });
  registry.add({.space = "training",
                .name = "stop",
                .kind = Kind::mutation,
                .title = "stop training",
                .description = "Ends a run after the step at hand, with a checkpoint.",
                .input = only_run,
                .errors = {missing},
                .access = {.scopes = {"training:run"}}},
               [runs](Context& call) {
                 runs->find(call.input("run").string(), owner_of(call))->stop();
                 return Value(Value::Object());
               });
  registry.add({.space = "training",
                .name = "list",
                .title = "list training runs",
                .description = "The caller's runs.",
                .input = schema_of(R"({"type": ["object", "null"]})"),
                .access = {.scopes = {"training:read"}}},
               [runs](Context& call) { return runs->list(owner_of(call)); });
}

}  // namespace weft::operations
