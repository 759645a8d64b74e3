#include "workflow/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "weft/error.hpp"
#include "weft/schema.hpp"
#include "workflow/reference.hpp"

namespace weft::workflow::detail {

using operations::OperationError;

constexpr double kRetryDelayMax = 30;  // seconds

// Errors that another attempt would meet again are not among these.
static bool may_be_mended(const OperationError& error) {
  for (const std::string_view code : {operations::kValidationError, operations::kAccessDenied, operations::kNotFound,
                                      operations::kLoop, operations::kAborted})
    if (error.code() == code) return false;
  return true;
}

Engine::Engine(const Template& workflow, Value input, RunOptions options, std::shared_ptr<Calls> calls)
    : template_(workflow),
      input_(std::move(input)),
      options_(std::move(options)),
      policy_(options_.on_failure.value_or(template_.on_failure)),
      calls_(std::move(calls)),
      session_(SessionState::current()),
      plan_(template_, nullptr, true) {
  frames_.emplace_back();
  root_ = make(plan_.root(), nullptr, &frames_.back(), plan_.root().key);
}

Engine::~Engine() { join(); }

// ---- Those who wait -----------------------------------------------------------------------------------------------------------

void Engine::start() {
  const std::lock_guard lock(mutex_);
  ready(*root_);
}

bool Engine::wait_until(const std::optional<Clock::time_point>& time) {
  const auto has_finished = [&] { return has_ended(root_->status); };
  const std::optional<Clock::time_point>& deadline = options_.call.deadline;
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<Clock::time_point> next = time;
    if (deadline && !ended_ && (!next || *deadline < *next)) next = deadline;
    if (!next) {
      finished_.wait(lock, has_finished);
      return true;
    }
    if (finished_.wait_until(lock, *next, has_finished)) return true;
    if (time && Clock::now() >= *time) return false;
    lock.unlock();
    end(OperationError(operations::kTimeout, "the workflow's deadline has passed"));
    lock.lock();
  }
}

void Engine::end(OperationError error) {
  std::vector<std::string> running;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || has_ended(root_->status)) return;
    ended_ = std::move(error);
    if (policy_ == OnFailure::abort_dependents)
      for (const Instance& each : instances_)
        if (each.status == Status::running && !each.request_id.empty()) running.push_back(each.request_id);
    // What waits for a thread ends when one takes it; what waits for others ends with them.
  }
  for (const std::string& id : running) calls_->abort(id);
  changed_.notify_all();
}

void Engine::join() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

Value Engine::result() const {
  const std::lock_guard lock(mutex_);
  if (ended_) throw *ended_;
  if (root_->error) throw *root_->error;
  return root_->result;
}

Status Engine::status() const {
  const std::lock_guard lock(mutex_);
  return root_->status;
}

CallGraph Engine::graph() const {
  const std::lock_guard lock(mutex_);
  CallGraph graph;
  for (const Instance& each : instances_) {
    CallGraph::Node node;
    node.id = each.key;
    node.operation = each.plan->element->operation;
    node.name = each.plan->element->id;
    node.request_id = each.request_id;
    node.status = each.status;
    node.started = each.started;
    node.ended = each.ended;
    if (each.parent) {
      node.parent = each.parent->key;
      const Type type = each.parent->plan->element->type;
      if (type == Type::sequential && each.plan->index > 0)
        node.depends_on.push_back(each.parent->children[each.plan->index - 1]->key);
      if (type == Type::parallel)
        for (const std::size_t before : each.plan->waits_for)
          node.depends_on.push_back(each.parent->children[before]->key);
      if (type == Type::map && is_in_order(*each.parent) && each.frame->index > 0)
        node.depends_on.push_back(each.parent->children[each.frame->index - 1]->key);
    }
    if (each.error) {
      node.code = each.error->code();
      node.message = each.error->what();
    }
    graph.set(std::move(node));
  }
  return graph;
}

// ---- Instances ----------------------------------------------------------------------------------------------------------------

Engine::Instance* Engine::make(const PlanNode& plan, Instance* parent, Frame* frame, std::string key) {
  Instance& instance = instances_.emplace_back();
  instance.plan = &plan;
  instance.parent = parent;
  instance.frame = frame;
  instance.key = std::move(key);
  if (plan.element->type != Type::map)
    for (const PlanNode* child : plan.children)
      instance.children.push_back(make(*child, &instance, frame, fmt::format("{}.{}", instance.key, child->index)));
  return &instance;
}

void Engine::make_item(Instance& map) {
  Frame& frame = frames_.emplace_back();
  frame.outer = map.frame;
  frame.as = map.plan->element->as;
  frame.index = map.next;
  frame.item = map.items[map.next];
  if (map.next > 0 && is_in_order(map))
    frame.previous = map.children.back()->result;
  else if (map.next == 0 && map.plan->element->initial)
    frame.previous = resolve(map, *map.plan->element->initial);
  map.children.push_back(make(*map.plan->children[0], &map, &frame, fmt::format("{}[{}]", map.key, map.next)));
  ++map.next;
}

void Engine::set_status(Instance& instance, Status status) {
  instance.status = status;
  if (status == Status::running) instance.started = Clock::now();
  if (has_ended(status)) instance.ended = Clock::now();
  if (!options_.observer) return;
  NodeEvent event{
      instance.key, instance.plan->element->operation, instance.plan->element->id, status, instance.request_id, "", ""};
  if (instance.error) {
    event.code = instance.error->code();
    event.message = instance.error->what();
  }
  options_.observer(event);
}

bool Engine::is_in_order(const Instance& map) { return map.plan->element->max_concurrency <= 1; }

std::size_t Engine::limit_of(const Instance& instance) const {
  const Element& element = *instance.plan->element;
  if (element.type == Type::map) return std::max<std::size_t>(1, element.max_concurrency);
  return element.max_concurrency == 0 ? SIZE_MAX : element.max_concurrency;
}

void Engine::ready(Instance& instance) {
  if (instance.parent) ++instance.parent->active;
  set_status(instance, Status::ready);
  queue_.push_back(&instance);
  if (queue_.size() > idle_threads_ && threads_.size() < std::max<std::size_t>(1, options_.threads_max) && !closing_)
    threads_.emplace_back([this] { serve(); });
  changed_.notify_one();
}

// An element that will not start, and all in it.
void Engine::abort_idle(Instance& instance) {
  if (!is_pending(instance.status)) return;
  set_status(instance, Status::aborted);
  for (Instance* child : instance.children) abort_idle(*child);
}

// ---- What comes next ----------------------------------------------------------------------------------------------------------

void Engine::advance(Instance& instance) {
  if (instance.status != Status::running) return;
  switch (instance.plan->element->type) {
    case Type::operation: return;
    case Type::sequential: return advance_sequential(instance);
    case Type::parallel: return advance_parallel(instance);
    case Type::map: return advance_map(instance);
    case Type::conditional:
      if (instance.active > 0) return;
      if (instance.chosen < instance.children.size() && is_pending(instance.children[instance.chosen]->status)) {
        if (!starts_nothing()) return ready(*instance.children[instance.chosen]);
        abort_idle(*instance.children[instance.chosen]);
      }
      complete(instance);
  }
}

void Engine::advance_sequential(Instance& instance) {
  if (instance.active > 0) return;
  if (instance.error || starts_nothing())
    for (Instance* child : instance.children) abort_idle(*child);
  else if (instance.next < instance.children.size())
    return ready(*instance.children[instance.next++]);
  complete(instance);
}

void Engine::advance_parallel(Instance& instance) {
  // A child that depends on one which did not complete is aborted, and so on along the dependencies.
  for (bool again = true; again;) {
    again = false;
    for (Instance* child : instance.children) {
      if (!is_pending(child->status) || child->status == Status::ready) continue;
      const std::set<std::size_t>& before = child->plan->waits_for;
      const auto is_lost = [&](std::size_t i) {
        const Status status = instance.children[i]->status;
        return status == Status::failed || status == Status::aborted;
      };
      if (starts_nothing() || std::any_of(before.begin(), before.end(), is_lost)) {
        abort_idle(*child);
        again = true;
      }
    }
  }
  const std::size_t limit = limit_of(instance);
  bool all_ended = true;
  for (Instance* child : instance.children) {
    all_ended &= has_ended(child->status);
    if (child->status != Status::idle && child->status != Status::waiting) continue;
    const bool can_start =
        std::all_of(child->plan->waits_for.begin(), child->plan->waits_for.end(),
                    [&](std::size_t i) { return instance.children[i]->status == Status::completed; });
    if (can_start && instance.active < limit)
      ready(*child);
    else if (child->status == Status::idle)
      set_status(*child, Status::waiting);
  }
  if (all_ended) complete(instance);
}

void Engine::advance_map(Instance& instance) {
  // In order, an item depends on the one before it.
  while (instance.next < instance.items.size() && instance.active < limit_of(instance) && !starts_nothing() &&
         !(is_in_order(instance) && instance.error)) {
    if (instances_.size() >= options_.nodes_max) {
      if (!instance.error)
        instance.error =
            OperationError(operations::kExecutionError,
                           fmt::format("the workflow has made {} elements, which is the limit", instances_.size()));
      failed_ = true;
      break;
    }
    try {
      make_item(instance);
    } catch (const Error& error) {
      instance.error = OperationError(operations::kExecutionError, error.what());
      failed_ = true;
      break;
    }
    ready(*instance.children.back());
  }
  if (instance.active == 0) complete(instance);
}

// Ends a composite whose children have ended.
void Engine::complete(Instance& instance) {
  if (instance.error) return finish(instance, instance.error);
  const bool has_aborted = std::any_of(instance.children.begin(), instance.children.end(),
                                       [](const Instance* child) { return child->status == Status::aborted; });
  if (has_aborted || (instance.plan->element->type == Type::map && instance.next < instance.items.size()))
    return finish(instance, reason(), true);
  switch (instance.plan->element->type) {
    case Type::sequential: instance.result = instance.children.back()->result; break;
    case Type::conditional:
      if (instance.chosen < instance.children.size()) instance.result = instance.children[instance.chosen]->result;
      break;
    default: {
      Value::Array list;
      for (const Instance* child : instance.children) list.push_back(child->result);
      instance.result = std::move(list);
    }
  }
  if (instance.plan->element->output) {
    try {
      const Value whole = instance.result;
      instance.result = resolved(*instance.plan->element->output, [&](std::string_view name) -> const Value* {
        return name == "previous" ? &whole : find(instance, name);
      });
    } catch (const Error& error) {
      return finish(instance, OperationError(operations::kExecutionError,
                                             fmt::format("at {}/props/output: {}", instance.plan->path, error.what())));
    }
  }
  finish(instance, std::nullopt);
}

OperationError Engine::reason() const {
  return ended_.value_or(OperationError(operations::kAborted, "another element has failed"));
}

void Engine::finish(Instance& instance, std::optional<OperationError> error, bool is_aborted) {
  instance.error = std::move(error);
  // A call that was under way when the workflow ended.
  if (instance.error && ended_ &&
      (instance.error->code() == operations::kAborted || instance.error->code() == operations::kTimeout))
    is_aborted = true;
  if (instance.error && !is_aborted) failed_ = true;
  if (!instance.error && !instance.plan->element->id.empty())
    instance.frame->results.insert_or_assign(instance.plan->element->id, instance.result);
  set_status(instance, !instance.error ? Status::completed : is_aborted ? Status::aborted : Status::failed);
  if (Instance* parent = instance.parent) {
    --parent->active;
    if (instance.error && !parent->error && !is_aborted) parent->error = instance.error;
    advance(*parent);
  } else {
    finished_.notify_all();
    changed_.notify_all();
  }
}

// ---- Values -------------------------------------------------------------------------------------------------------------------

const Value* Engine::previous_of(const Instance& instance) {
  for (const Instance* at = &instance; at->parent; at = at->parent) {
    const Element& parent = *at->parent->plan->element;
    if (parent.type == Type::sequential && at->plan->index > 0)
      return &at->parent->children[at->plan->index - 1]->result;
    if (parent.type == Type::map && parent.max_concurrency <= 1) return &at->frame->previous;
  }
  return &input_;
}

const Value* Engine::find(const Instance& instance, std::string_view name) {
  if (name == "input") return &input_;
  if (name == "previous") return previous_of(instance);
  for (const Frame* frame = instance.frame; frame; frame = frame->outer) {
    if (frame->outer && name == frame->as) return &frame->item;
    if (frame->outer && name == "before") return &frame->previous;
    if (frame->outer && name == "index") {
      scratch_ = frame->index;
      return &scratch_;
    }
    if (const auto found = frame->results.find(name); found != frame->results.end()) return &found->second;
  }
  return nullptr;
}

Value Engine::resolve(const Instance& instance, const Value& value) {
  return resolved(value, [&](std::string_view name) { return find(instance, name); });
}

OperationError Engine::located(const Instance& instance, const OperationError& error) const {
  return OperationError(
      error.code(),
      fmt::format("{}{}: {}", instance.plan->path,
                  instance.plan->element->id.empty() ? "" : " " + quote(instance.plan->element->id), error.what()),
      error.details());
}

// ---- Threads ------------------------------------------------------------------------------------------------------------------

void Engine::serve() {
  const SessionState::Scope scope(session_);
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_threads_;
    changed_.wait(lock, [&] { return closing_ || !queue_.empty() || has_ended(root_->status); });
    --idle_threads_;
    if (queue_.empty()) return;
    Instance& instance = *queue_.front();
    queue_.pop_front();
    if (starts_nothing()) {
      for (Instance* child : instance.children) abort_idle(*child);
      finish(instance, reason(), true);
      continue;
    }
    set_status(instance, Status::running);
    lock.unlock();
    std::optional<OperationError> failure;
    try {
      begin(instance);
    } catch (const OperationError& error) {
      failure = located(instance, error);
    } catch (const std::exception& error) {
      failure = located(instance, OperationError(operations::kExecutionError, error.what()));
    } catch (...) {
      failure =
          located(instance, OperationError(operations::kUnknownError, "it threw something that is not an exception"));
    }
    lock.lock();
    if (failure)
      for (Instance* child : instance.children) abort_idle(*child);
    if (failure || instance.plan->element->type == Type::operation)
      finish(instance, std::move(failure));
    else
      advance(instance);
  }
}

void Engine::begin(Instance& instance) {
  switch (instance.plan->element->type) {
    case Type::operation: return run_operation(instance);
    case Type::conditional: return choose(instance);
    case Type::map: return list_items(instance);
    default: return;
  }
}

void Engine::run_operation(Instance& instance) {
  const Element& element = *instance.plan->element;
  Value input;
  {
    const std::lock_guard lock(mutex_);
    input = element.input ? resolve(instance, *element.input) : *previous_of(instance);
  }
  if (!element.input) input = calls_->fitted(element.operation, std::move(input));
  Value result;
  for (int attempt = 0;; ++attempt) try {
      result = call_once(instance, input, attempt);
      break;
    } catch (const OperationError& error) {
      if (attempt == element.retries || !may_be_mended(error) || !wait_to_retry(element, attempt)) throw;
    }
  const std::lock_guard lock(mutex_);
  instance.result = std::move(result);
}

Value Engine::call_once(Instance& instance, const Value& input, int attempt) {
  const Element& element = *instance.plan->element;
  std::optional<Clock::time_point> deadline = options_.call.deadline;
  if (element.timeout) {
    const auto own =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*element.timeout));
    if (!deadline || own < *deadline) deadline = own;
  }
  const std::string key = attempt == 0 ? instance.key : fmt::format("{}:{}", instance.key, attempt + 1);
  return calls_->call(key, element.operation, input, deadline, [&](const std::string& request_id) {
    bool is_late = false;
    {
      const std::lock_guard lock(mutex_);
      instance.request_id = request_id;
      is_late = ended_.has_value() && policy_ == OnFailure::abort_dependents;
    }
    if (is_late) calls_->abort(request_id);
  });
}

// Waits before another attempt. False if there is to be none, because the workflow ends.
bool Engine::wait_to_retry(const Element& element, int attempt) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  const double seconds = std::min(std::ldexp(element.retry_delay, attempt), kRetryDelayMax);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (options_.call.deadline && until >= *options_.call.deadline) return false;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (starts_nothing()) return false;
    }
    const auto left = until - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, kLook));
  }
}

void Engine::choose(Instance& instance) {
  const Element& element = *instance.plan->element;
  bool holds = false;
  if (element.test_function) {
    Value::Object results;
    {
      const std::lock_guard lock(mutex_);
      results.set("input", input_);
      results.set("previous", *previous_of(instance));
      for (const Frame* frame = instance.frame; frame; frame = frame->outer) {
        if (frame->outer && !results.contains(frame->as)) results.set(frame->as, frame->item);
        if (frame->outer && !results.contains("index")) {
          results.set("index", frame->index);
          results.set("before", frame->previous);
        }
        for (const auto& [name, value] : frame->results) results.set(name, value);
      }
    }
    holds = element.test_function(results);
  } else {
    const bool matches = element.test->is_object();
    Value value;
    {
      const std::lock_guard lock(mutex_);
      value = resolve(instance, matches ? (*element.test)["value"] : *element.test);
    }
    if (!matches && value.kind() != Value::Kind::boolean)
      throw UsageError(fmt::format("the test {} is {}, and not a boolean", quote(element.test->string()),
                                   with_article(value.kind())));
    holds = matches ? schema::Schema((*element.test)["matches"]).accepts(value) : value.boolean();
  }
  const std::lock_guard lock(mutex_);
  instance.chosen = holds ? 0 : 1;
}

void Engine::list_items(Instance& instance) {
  const std::lock_guard lock(mutex_);
  Value list = resolve(instance, instance.plan->element->over);
  if (!list.is_array())
    throw UsageError(fmt::format("what the Map goes over is {}, and not a list", with_article(list.kind())));
  instance.items = std::move(list.elements());
}

}  // namespace weft::workflow::detail
