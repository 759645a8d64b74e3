weft_describe(graph "/graph/ops/" graph_rows)
