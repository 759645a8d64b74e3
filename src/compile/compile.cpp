#include "compile/compile.hpp"

#include "compile/assemble.hpp"
#include "compile/build.hpp"
#include "compile/composites.hpp"
#include "compile/copies.hpp"
#include "compile/narrow_operands.hpp"
#include "compile/narrow_results.hpp"
#include "compile/order.hpp"
#include "compile/place.hpp"
#include "compile/rewrite.hpp"
#include "compile/rows_in_products.hpp"
#include "compile/shared_casts.hpp"
#include "compile/turned_products.hpp"

namespace weft::compiler {

Compiled compile(const Request& request, const Target& target, const Settings& settings) {
  OrderedGraph graph = rewrite(ordered(request.outputs), settings.disabled_rewrites);
  graph = with_composites_split(graph, target, settings);
  graph = rewrite(graph, settings.disabled_rewrites);  // the rules apply to the primitives too
  check_dtypes(graph, target);
  graph = with_shared_casts(std::move(graph), settings);
  graph = with_turned_products(std::move(graph), target, settings);
  graph = with_narrow_results(std::move(graph), target, settings);
  graph = with_narrow_operands(std::move(graph), target, settings);
  graph = with_copies(std::move(graph), target);
  const std::vector<const graph::Node*> compute = in_order(graph);
  Placement placement = place_parts(graph, compute);
  Drafts drafts = build_kernels(graph, compute, placement, target, settings);
  if (settings.fusion) compute_rows_in_products(drafts.kernels, placement, target);
  for (DraftKernel& draft : drafts.kernels)
    if (auto* product = std::get_if<kernel::MatmulKernel>(&draft.kernel)) product->precision = settings.products;
  const Order order = order_of(drafts.kernels, graph.outputs, request, placement);
  return assemble(std::move(drafts.kernels), order, graph.outputs, target);
}

}  // namespace weft::compiler
