#include "runtime/plan_cache.hpp"

#include <algorithm>

namespace weft::runtime {

namespace {

constexpr std::size_t kSlicePlans = 4;  // plans that contain starts, before starts become operands

bool serves(const CachedPlan& plan, const Structure& structure) {
  for (std::size_t h = 0; h < plan.values.size(); ++h)
    if (!plan.is_operand[h] && plan.values[h] != structure.holes[h].value) return false;
  return true;
}

}  // namespace

std::shared_ptr<CachedPlan> PlanCache::find(const Structure& structure) {
  const std::lock_guard lock(mutex_);
  auto [first, last] = families_.equal_range(structure.hash);
  auto family = std::find_if(first, last, [&](const auto& entry) { return entry.second.key == structure.key; });
  if (family == last) {
    Family made{.key = structure.key};
    for (std::size_t i = 0; i < structure.nodes.size(); ++i)
      if (!structure.is_leaf[i] && structure.nodes[i]->expression)
        made.expressions.push_back(structure.nodes[i]->expression);
    family = families_.emplace(structure.hash, std::move(made));
  }
  for (const auto& plan : family->second.plans)
    if (serves(*plan, structure)) {
      plan->last_use = ++clock_;
      return plan;
    }
  return add(family->second, structure);
}

std::shared_ptr<CachedPlan> PlanCache::add(Family& family, const Structure& structure) {
  auto plan = std::make_shared<CachedPlan>();
  const CachedPlan* like = family.plans.empty() ? nullptr : family.plans.back().get();  // the holes that differ from it
  const std::vector<Filling> fillings = structure.holes.empty() ? std::vector<Filling>() : fillings_of(structure);
  for (std::size_t h = 0; h < structure.holes.size(); ++h) {
    const Structure::Hole& hole = structure.holes[h];
    const bool waits = hole.is_start && family.plans.size() < kSlicePlans;
    const bool changes = like && (like->is_operand[h] || (like->values[h] != hole.value && !waits));
    plan->is_operand.push_back(fillings[h] == Filling::operand || (fillings[h] == Filling::either && changes));
    plan->values.push_back(hole.value);
  }
  plan->last_use = ++clock_;
  ++made_;
  ++count_;
  family.plans.push_back(plan);
  if (count_ > kPlansMax) drop_oldest();
  return plan;
}

void PlanCache::drop_oldest() {
  auto at = families_.end();
  std::size_t oldest = 0;
  for (auto it = families_.begin(); it != families_.end(); ++it)
    for (std::size_t p = 0; p < it->second.plans.size(); ++p)
      if (at == families_.end() || it->second.plans[p]->last_use < at->second.plans[oldest]->last_use)
        at = it, oldest = p;
  at->second.plans.erase(at->second.plans.begin() + static_cast<std::ptrdiff_t>(oldest));
  if (at->second.plans.empty()) families_.erase(at);
  --count_;
}

void PlanCache::remove(const std::shared_ptr<CachedPlan>& plan) {
  const std::lock_guard lock(mutex_);
  for (auto it = families_.begin(); it != families_.end(); ++it)
    if (std::erase(it->second.plans, plan) > 0) {
      --count_;
      if (it->second.plans.empty()) families_.erase(it);
      return;
    }
}

void PlanCache::clear() {
  const std::lock_guard lock(mutex_);
  families_.clear();
  count_ = 0;
}

std::size_t PlanCache::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace weft::runtime
