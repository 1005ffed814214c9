/* A button beside every block of code copies it, without the prompts and the output of a session. */
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      const lines = block.innerText.split("\n");
      const typed = lines.filter((line) => /^(\$|>>>|\.\.\.)( |$)/.test(line));
      const text = typed.length ? typed.map((line) => line.replace(/^(\$|>>>|\.\.\.) ?/, "")) : lines;
      await navigator.clipboard.writeText(text.join("\n").trimEnd() + "\n");
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.parentElement.append(button);
  }
});
