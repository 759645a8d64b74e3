// A running workflow: its elements as they are made, their states, and the threads that run them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weft/workflow/run.hpp"
#include "workflow/plan.hpp"

namespace weft {
class SessionState;
}

namespace weft::workflow::detail {

/// What an engine needs of the place where its operations run. Called on any of its threads.
class Calls {
 public:
  virtual ~Calls() = default;
  /// Calls an operation and waits. `begun` is told the request's id before. Errors: OperationError.
  virtual Value call(const std::string& node, const std::string& operation, Value input,
                     const std::optional<operations::Clock::time_point>& deadline,
                     const std::function<void(const std::string& request_id)>& begun) = 0;
  /// The result before an operation as its input: without fields that the schema excludes.
  virtual Value fitted(const std::string& operation, Value value) = 0;
  /// Ends a call that is under way.
  virtual void abort(const std::string& request_id) = 0;
};

/// Runs one workflow once.
///
/// Every element is an Instance; a map makes new ones for each item. One mutex guards all of them. An instance becomes ready when
/// its parent lets it, waits in a queue, and is begun by a thread: an operation is called without the mutex, and the others make
/// or let go their children. The end of an instance goes to its parent, which goes on or ends too.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// `workflow` is copied, and checked already.
  Engine(const Template& workflow, Value input, RunOptions options, std::shared_ptr<Calls> calls);
  ~Engine();

  /// Begins; returns at once.
  void start();
  /// Waits until it has ended, or until `time`; ends it at its deadline. Whether it has ended.
  bool wait_until(const std::optional<operations::Clock::time_point>& time);
  /// Ends what is under way, as the failure policy says.
  void end(operations::OperationError error);
  /// Waits for its threads. Afterwards nothing of it runs.
  void join();
  /// The result once it has ended. Errors: OperationError.
  Value result() const;
  Status status() const;
  CallGraph graph() const;

 private:
  using Clock = operations::Clock;
  /// Names that the elements of one item of a map, or of the whole, share.
  struct Frame {
    Frame* outer = nullptr;
    std::string as;
    Value item;
    std::size_t index = 0;
    Value previous;
    std::map<std::string, Value, std::less<>> results;
  };
  struct Instance {
    const PlanNode* plan = nullptr;
    Instance* parent = nullptr;
    Frame* frame = nullptr;
    std::string key;
    Status status = Status::idle;
    Value result;
    std::optional<operations::OperationError> error;
    std::optional<Clock::time_point> started, ended;
    std::string request_id;
    std::vector<Instance*> children;
    std::size_t active = 0;         // children that are ready or run
    std::size_t next = 0;           // sequential: the child to come; map: the item
    Value::Array items;             // of a map
    std::size_t chosen = SIZE_MAX;  // of a conditional
  };

  Instance* make(const PlanNode& plan, Instance* parent, Frame* frame, std::string key);
  void make_item(Instance& map);

  // With the mutex.
  void set_status(Instance& instance, Status status);
  void ready(Instance& instance);
  void advance(Instance& instance);
  void advance_sequential(Instance& instance);
  void advance_parallel(Instance& instance);
  void advance_map(Instance& instance);
  void finish(Instance& instance, std::optional<operations::OperationError> error, bool is_aborted = false);
  operations::OperationError reason() const;  // of what does not start any more
  void complete(Instance& instance);
  void abort_idle(Instance& instance);
  bool starts_nothing() const { return ended_ || (failed_ && policy_ == OnFailure::continue_running); }
  const Value* find(const Instance& instance, std::string_view name);
  const Value* previous_of(const Instance& instance);
  Value resolve(const Instance& instance, const Value& value);
  std::size_t limit_of(const Instance& instance) const;
  static bool is_in_order(const Instance& map);

  // Without the mutex.
  void serve();
  void begin(Instance& instance);
  void run_operation(Instance& instance);
  Value call_once(Instance& instance, const Value& input, int attempt);
  bool wait_to_retry(const Element& element, int attempt);
  void choose(Instance& instance);
  void list_items(Instance& instance);
  operations::OperationError located(const Instance& instance, const operations::OperationError& error) const;

  const Template template_;
  const Value input_;
  const RunOptions options_;
  const OnFailure policy_;
  const std::shared_ptr<Calls> calls_;
  SessionState& session_;
  Plan plan_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;   // for threads
  std::condition_variable finished_;  // for those who wait
  std::deque<Instance> instances_;
  std::deque<Frame> frames_;
  std::deque<Instance*> queue_;
  std::vector<std::thread> threads_;
  std::size_t idle_threads_ = 0;
  Instance* root_ = nullptr;
  bool failed_ = false, closing_ = false;
  std::optional<operations::OperationError> ended_;  // by an abort or the deadline
  Value scratch_;                                    // the index of an item, as a value
};

}  // namespace weft::workflow::detail
