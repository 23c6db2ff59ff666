"""Who may connect, who they are and what they may do: rules without sockets; the server and the clients act on them."""
