// A model as a tree of components, in JSX: weft run examples/scripts/tree.tsx
import { h, randn, manualSeed, nn, type Element, type Tensor } from "weft";

type Step = nn.Module | ((x: Tensor) => Tensor);

// A component turns its properties and children into steps.
const Linear = ({ from, to }: { from: number; to: number }): Step => nn.linear(from, to);
const Relu = (): Step => (x: Tensor) => x.relu();
const Sequence = (_: {}, ...steps: Step[]): Step => nn.sequential(...steps);
const Block = ({ width }: { width: number }): Element => (
  <Sequence>
    <Linear from={width} to={width} />
    <Relu />
  </Sequence>
);

// Builds what an element describes; a component may give an element again.
function build(element: Element): Step {
  const steps = element.children.map((child) => build(child as Element));
  const made = (element.type as (props: object, ...steps: Step[]) => Step | Element)(element.props, ...steps);
  return typeof made === "function" ? made : build(made as Element);
}

manualSeed(4);
const model = build(
  <Sequence>
    <Linear from={8} to={32} />
    <Relu />
    {[1, 2].map(() => <Block width={32} />)}
    <Linear from={32} to={1} />
  </Sequence>,
) as nn.Layer;
console.log(model.summary());
console.log("result", model(randn([4, 8])).shape);
