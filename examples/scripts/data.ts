// Samples for regression.ts.
export interface Sample {
  x: number;
  y: number;
}
/** A small number that looks random and is the same in every run. */
export const noise = (i: number): number => (((i * 2654435761) % 1000) / 1000 - 0.5) * 0.02;
