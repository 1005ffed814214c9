"""Read printed relations: compile formulas into functions of arrays, and decide them from the print alone."""
