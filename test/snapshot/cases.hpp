// The graphs of the snapshots.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace weft::snapshot {

struct Case {
  std::string name;           // of its files
  std::function<void()> run;  // on the default device
  bool on_small_gpu = false;  // also rendered for a GPU with few resources
  bool cpu_only = false;
};

std::vector<Case> elementwise_cases();  // a row of the table each, and reductions
std::vector<Case> op_cases();           // views, products, gathers, composites, losses, caches
std::vector<Case> training_cases();
std::vector<Case> language_cases();
std::vector<Case> random_cases();

}  // namespace weft::snapshot
